from dataclasses import replace

import pytest
import torch

from icda.methods import Setup, create_method
from icda.methods.domains import per_domain

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


@pytest.mark.parametrize("name", ["irm", "ib_irm", "v_rex", "coral", "fish", "domain_mix", "lisa"])
def test_domains_without_samples_do_not_count(name: str) -> None:
    create_method(name, SETUP)
    lonely = replace(SETUP, group_counts=torch.tensor([6, 0, 4, 0]))
    with pytest.raises(ValueError, match="compares domains, and the training set has samples of 1"):
        create_method(name, lonely)
