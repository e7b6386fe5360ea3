import math

import pytest
import torch

from icda.losses.terms.prior import attribute_log_prior, log_ratio, prior_term


def test_margins_are_log_ratios_of_priors() -> None:
    counts, targets = [500.0, 30.0, 7.0, 1.0], [2, 0, 3]
    found = prior_term(torch.tensor(counts), torch.tensor(targets), torch.float64)
    for i, y in enumerate(targets):
        for c in range(4):
            expected = math.log((counts[c] / sum(counts)) / (counts[y] / sum(counts)))
            assert found[i, c].item() == pytest.approx(expected, abs=1e-12)


def test_the_target_has_margin_zero_exactly() -> None:
    counts = torch.rand(9) * 1e6
    targets = torch.arange(9)
    assert (prior_term(counts, targets).diagonal() == 0).all()


def test_only_ratios_of_counts_matter() -> None:
    counts, targets = torch.tensor([8.0, 4.0, 2.0]), torch.arange(3)
    torch.testing.assert_close(prior_term(counts, targets), prior_term(counts / 14, targets))


def test_a_class_without_training_samples_is_left_out_of_the_softmax() -> None:
    found = prior_term(torch.tensor([4.0, 0.0, 4.0]), torch.tensor([0, 2]))
    assert found[:, 1].tolist() == [-math.inf] * 2
    assert torch.isfinite(found[:, [0, 2]]).all()


def test_a_target_whose_count_is_zero_is_named() -> None:
    with pytest.raises(ValueError, match="class 1, whose class_counts entry is 0"):
        prior_term(torch.tensor([4.0, 0.0, 4.0]), torch.tensor([0, 1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_has_the_type_asked_for(dtype: torch.dtype) -> None:
    assert prior_term(torch.tensor([1.0, 2.0]), torch.tensor([0]), dtype).dtype == dtype


def test_an_attribute_has_the_log_ratios_of_its_own_row() -> None:
    table = [[9.0, 1.0, 4.0], [0.0, 5.0, 2.0]]
    found = log_ratio(attribute_log_prior(torch.tensor(table))[[1, 0]], torch.tensor([1, 2]), torch.float64)
    assert found[0].exp().tolist() == pytest.approx([0.5 / 5, 1, 2 / 5])
    assert found[1].exp().tolist() == pytest.approx([9 / 4, 1 / 4, 1])


def test_a_pair_without_samples_counts_half_of_one_or_less_where_samples_count_less() -> None:
    table = torch.tensor([[9.0, 0.0], [3.0, 2.0]])
    assert attribute_log_prior(table)[0, 1].exp().item() == pytest.approx(0.5)
    assert attribute_log_prior(table, unit=0.2)[0, 1].exp().item() == pytest.approx(0.1)
    assert attribute_log_prior(table / 100)[0, 1].exp().item() == pytest.approx(0.02)
