"""The counted prior against a loop, and its limits."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from icda.cross_fit import answer_log_prior, conditional_log_prior, joint_counts


def test_counts_and_prior_are_those_of_a_loop() -> None:
    answers, targets = torch.randint(4, (60,)), torch.randint(4, (60,))
    found = answer_log_prior(answers, targets, 4)
    for i in range(60):
        alike = [int(targets[j]) for j in range(60) if answers[j] == answers[i]]
        for c in range(4):
            share = sum(int(y) == c for y in targets) / 60
            expected = math.log((sum(y == c for y in alike) + share) / (len(alike) + 1))
            assert float(found[i, c]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("pseudo_samples", [0.1, 1.0, 50.0])
def test_an_attribute_that_tells_nothing_is_logit_adjustment(pseudo_samples: float) -> None:
    shares = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    constant = conditional_log_prior(60 * shares[None], pseudo_samples)
    independent = conditional_log_prior(
        torch.outer(torch.tensor([10.0, 40.0], dtype=torch.float64), shares), pseudo_samples
    )
    for row in (*constant, *independent):
        torch.testing.assert_close(row.exp(), shares, rtol=0, atol=1e-12)


def test_an_attribute_nobody_has_gets_the_shares_of_the_classes() -> None:
    found = conditional_log_prior(torch.tensor([[0.0, 0.0], [3.0, 1.0]]))
    torch.testing.assert_close(found[0].exp(), torch.tensor([0.75, 0.25], dtype=torch.float64))


def test_many_samples_leave_the_shares_within_the_attribute() -> None:
    counts = torch.tensor([[9e6, 1e6], [2e6, 8e6]])
    torch.testing.assert_close(
        conditional_log_prior(counts).exp(), F.normalize(counts.double(), p=1, dim=1), rtol=0, atol=1e-6
    )


def test_it_is_finite_where_attribute_or_class_never_meet() -> None:
    assert torch.isfinite(conditional_log_prior(torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]]))).all()


def test_attributes_may_be_more_than_classes() -> None:
    counts = joint_counts(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 1, 1]), 5, 2)
    assert counts.tolist() == [[1, 0], [1, 0], [0, 2], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    "counts", [torch.zeros(2, 2), torch.tensor([[1.0, -1.0]]), torch.ones(3), torch.tensor([[math.inf, 1.0]])]
)
def test_bad_counts_are_refused(counts: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="needs counts"):
        conditional_log_prior(counts)


@pytest.mark.parametrize("amount", [0.0, -1.0, math.inf])
def test_smoothing_must_be_positive(amount: float) -> None:
    with pytest.raises(ValueError, match="pseudo_samples is a positive number"):
        conditional_log_prior(torch.ones(2, 2), amount)
