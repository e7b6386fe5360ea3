import pytest
import torch

from icda.methods import Setup, create_method
from icda.methods.domains import check_domains, per_domain

SETUP = Setup(2, 4, torch.tensor([6, 4]), 1, 10, torch.tensor([4, 2, 1, 3]), group_domains=torch.tensor([0, 1, 0, 1]))


def test_values_are_cut_by_domain_in_their_order() -> None:
    values, domains = torch.arange(12.0).view(6, 2), torch.tensor([2, 0, 2, 1, 0, 2])
    parts = per_domain(values, domains)
    for part, rows in zip(parts, ([1, 4], [3], [0, 2, 5]), strict=True):
        assert torch.equal(part, values[rows])


@pytest.mark.parametrize("name", ["irm", "ib_irm", "v_rex", "coral"])
@pytest.mark.parametrize("sampling", ["domain_balanced", "group_balanced", "uniform"])
def test_samples_are_drawn_as_asked(name: str, sampling: str) -> None:
    method = create_method(name, SETUP, {"sampling": sampling})
    assert [stage.sampling for stage in method.stages(3)] == [sampling]


def test_domains_without_samples_do_not_count() -> None:
    check_domains(SETUP, "irm")
    lonely = Setup(
        2, 4, torch.tensor([6, 4]), 1, 10, torch.tensor([6, 0, 4, 0]), group_domains=torch.tensor([0, 1] * 2)
    )
    with pytest.raises(ValueError, match="irm compares domains, and the training set has samples of 1"):
        check_domains(lonely, "irm")
