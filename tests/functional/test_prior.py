"""Counts of classes and attributes: weights, confusions and priors."""

import math
from decimal import Decimal, getcontext

import pytest
import torch
from torch.nn import functional as F

from icda.cross_fit.networks import answer_log_prior
from icda.functional.class_balance import effective_number_weights
from icda.functional.confusion import count_confusions
from icda.functional.prior import conditional_log_prior, joint_counts, log_ratio
from icda.metrics import confusion_matrix

COUNTS = torch.tensor([5000, 700, 83, 1])


def reference(counts, beta):
    """(1 - B) / (1 - B^n) in sixty digits, scaled to sum to C."""
    getcontext().prec = 60
    b = Decimal(beta)
    values = [(1 - b) / (1 - b**n) for n in counts.tolist()]
    return torch.tensor([float(value * len(values) / sum(values)) for value in values], dtype=torch.float64)


@pytest.mark.parametrize("beta", ["0.5", "0.9", "0.99", "0.999", "0.9999"])
def test_weights_equal_the_formula(beta):
    found = effective_number_weights(COUNTS, float(beta))
    torch.testing.assert_close(found, reference(COUNTS, beta), rtol=1e-10, atol=0)
    assert float(found.sum()) == pytest.approx(len(COUNTS))


def test_beta_zero_weighs_all_classes_alike():
    assert torch.equal(effective_number_weights(COUNTS, 0.0), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("gap", [1e-9, 1e-12, 1e-15])
def test_a_beta_close_to_one_weighs_by_inverse_counts(gap):
    """1 - B^n is n (1 - B) to first order."""
    inverse = 1 / COUNTS.double()
    wanted = inverse * len(COUNTS) / inverse.sum()
    torch.testing.assert_close(effective_number_weights(COUNTS, 1 - gap), wanted, rtol=1e-5, atol=0)


def test_a_class_without_samples_gets_nothing_and_the_rest_share_its_weight():
    for beta in (0.0, 0.9999):
        found = effective_number_weights(torch.tensor([100, 0, 10]), beta)
        assert found[1] == 0
        assert float(found.sum()) == pytest.approx(3)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_pair_of_classes_has_the_mass_of_its_samples(weighted):
    generator = torch.Generator().manual_seed(0)
    predictions, targets = torch.randint(4, (2, 50), generator=generator)
    weights = torch.rand(50, generator=generator, dtype=torch.float64) if weighted else None
    expected = [[0.0] * 4 for _ in range(4)]
    for i in range(50):
        expected[int(targets[i])][int(predictions[i])] += 1.0 if weights is None else float(weights[i])
    found = count_confusions(predictions, targets, 4, weights)
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64))


def test_a_class_that_never_occurs_keeps_its_row_and_column():
    assert count_confusions(torch.tensor([0]), torch.tensor([1]), 3).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert confusion_matrix(torch.tensor([0]), torch.tensor([1]), 3) == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_margins_are_log_ratios_of_priors():
    counts, targets = [500.0, 30.0, 7.0, 1.0], [2, 0, 3]
    found = log_ratio(torch.tensor(counts).double().log(), torch.tensor(targets), torch.float64)
    for i, y in enumerate(targets):
        for c in range(4):
            expected = math.log((counts[c] / sum(counts)) / (counts[y] / sum(counts)))
            assert found[i, c].item() == pytest.approx(expected, abs=1e-12)


def test_the_target_has_margin_zero_exactly():
    counts = torch.rand(9) * 1e6
    targets = torch.arange(9)
    assert (log_ratio(counts.log(), targets).diagonal() == 0).all()


def test_only_ratios_of_counts_matter():
    counts, targets = torch.tensor([8.0, 4.0, 2.0]), torch.arange(3)
    torch.testing.assert_close(log_ratio(counts.log(), targets), log_ratio((counts / 14).log(), targets))


def test_a_class_without_training_samples_is_left_out_of_the_softmax():
    found = log_ratio(torch.tensor([4.0, 0.0, 4.0]).log(), torch.tensor([0, 2]))
    assert found[:, 1].tolist() == [-math.inf] * 2
    assert torch.isfinite(found[:, [0, 2]]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_has_the_type_asked_for(dtype):
    assert log_ratio(torch.tensor([1.0, 2.0]).log(), torch.tensor([0]), dtype).dtype == dtype


def test_an_attribute_has_the_log_ratios_of_its_own_row():
    table = [[9.0, 1.0, 4.0], [0.0, 5.0, 2.0]]
    prior = conditional_log_prior(torch.tensor(table), smoothing=1e-9)
    found = log_ratio(prior[[1, 0]], torch.tensor([1, 2]), torch.float64)
    assert found[0].exp().tolist() == pytest.approx([0, 1, 2 / 5], abs=1e-6)
    assert found[1].exp().tolist() == pytest.approx([9 / 4, 1 / 4, 1], abs=1e-6)


def test_a_pair_without_samples_counts_half_of_one_where_classes_are_even():
    odds = log_ratio(conditional_log_prior(torch.tensor([[9.0, 0.0], [0.0, 9.0]]))[[0]], torch.tensor([0]))
    assert odds[0, 1].exp().item() == pytest.approx(0.5 / 9.5)


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_a_tempered_prior_lies_between_that_of_the_attribute_and_that_of_the_classes(strength):
    counts = torch.randint(1, 9, (4, 3)).double()
    expected = strength * conditional_log_prior(counts) + (1 - strength) * (counts.sum(0) / counts.sum()).log()
    torch.testing.assert_close(conditional_log_prior(counts, strength=strength), expected)


def test_counts_and_prior_are_those_of_a_loop():
    answers, targets = torch.randint(4, (60,)), torch.randint(4, (60,))
    found = answer_log_prior(answers, targets, 4)
    for i in range(60):
        alike = [int(targets[j]) for j in range(60) if answers[j] == answers[i]]
        for c in range(4):
            share = sum(int(y) == c for y in targets) / 60
            expected = math.log((sum(y == c for y in alike) + 0.5 * 4 * share) / (len(alike) + 0.5 * 4))
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.1, 1.0, 50.0])
def test_an_attribute_that_tells_nothing_is_logit_adjustment(smoothing):
    shares = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    constant = conditional_log_prior(60 * shares[None], smoothing)
    independent = conditional_log_prior(torch.outer(torch.tensor([10.0, 40.0], dtype=torch.float64), shares), smoothing)
    for row in (*constant, *independent):
        torch.testing.assert_close(row.exp(), shares, rtol=0, atol=1e-12)


def test_an_attribute_nobody_has_gets_the_shares_of_the_classes():
    found = conditional_log_prior(torch.tensor([[0.0, 0.0], [3.0, 1.0]]))
    torch.testing.assert_close(found[0].exp(), torch.tensor([0.75, 0.25], dtype=torch.float64))


def test_many_samples_leave_the_shares_within_the_attribute():
    counts = torch.tensor([[9e6, 1e6], [2e6, 8e6]])
    torch.testing.assert_close(
        conditional_log_prior(counts).exp(), F.normalize(counts.double(), p=1, dim=1), rtol=0, atol=1e-6
    )


def test_pairs_that_never_meet_are_finite_and_a_class_without_samples_takes_no_part():
    found = conditional_log_prior(torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]]))
    assert torch.isfinite(found[:, :2]).all()
    assert found[:, 2].tolist() == [-math.inf] * 2


def test_attributes_may_be_more_than_classes():
    counts = joint_counts(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 1, 1]), 5, 2)
    assert counts.tolist() == [[1, 0], [1, 0], [0, 2], [0, 0], [0, 0]]
