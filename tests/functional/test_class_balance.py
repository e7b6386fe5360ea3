"""Class weights by the effective number of samples."""

from __future__ import annotations

from decimal import Decimal, getcontext

import pytest
import torch
from torch import Tensor

from icda.functional.class_balance import effective_number_weights

COUNTS = torch.tensor([5000, 700, 83, 1])


def reference(counts: Tensor, beta: str) -> Tensor:
    """(1 - B) / (1 - B^n) in sixty digits, scaled to sum to C."""
    getcontext().prec = 60
    b = Decimal(beta)
    values = [(1 - b) / (1 - b**n) for n in counts.tolist()]
    return torch.tensor([float(value * len(values) / sum(values)) for value in values], dtype=torch.float64)


@pytest.mark.parametrize("beta", ["0.5", "0.9", "0.99", "0.999", "0.9999"])
def test_weights_equal_the_formula(beta: str) -> None:
    found = effective_number_weights(COUNTS, float(beta))
    torch.testing.assert_close(found, reference(COUNTS, beta), rtol=1e-10, atol=0)
    assert float(found.sum()) == pytest.approx(len(COUNTS))


def test_beta_zero_weighs_all_classes_alike() -> None:
    assert torch.equal(effective_number_weights(COUNTS, 0.0), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("gap", [1e-9, 1e-12, 1e-15])
def test_a_beta_close_to_one_weighs_by_inverse_counts(gap: float) -> None:
    """1 - B^n is n (1 - B) to first order."""
    inverse = 1 / COUNTS.double()
    wanted = inverse * len(COUNTS) / inverse.sum()
    torch.testing.assert_close(effective_number_weights(COUNTS, 1 - gap), wanted, rtol=1e-5, atol=0)


def test_a_class_without_samples_gets_nothing_and_the_rest_share_its_weight() -> None:
    for beta in (0.0, 0.9999):
        found = effective_number_weights(torch.tensor([100, 0, 10]), beta)
        assert found[1] == 0
        assert float(found.sum()) == pytest.approx(3)
