"""The bound on mapped variances: training that runs away without it, and numbers that stay where it does not act."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from icda import ICDALoss, ISDALoss, RISDALoss
from icda.errors import InputError
from icda.functional.augmentation import variance_term
from icda.functional.fused import adjusted_logits, augmentation_term
from icda.losses import SGIDALoss
from icda.losses.augmented import VARIANCE_BOUND
from icda.statistics import Moments

TYPES = [ICDALoss, ISDALoss, RISDALoss, SGIDALoss]
KINDS = ["full", "diagonal", "low_rank"]


def train_head(loss, steps=60):
    """SGD at the default rate and momentum on features that spread widely, as those of few images come to do."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(64) % 2
    features = 25 * torch.randn(64, 6, generator=generator) + targets[:, None]
    head = nn.Linear(6, 2)
    with torch.no_grad():
        head.weight.copy_(0.1 * torch.randn(2, 6, generator=generator))
        head.bias.zero_()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    values = []
    for step in range(steps):
        optimizer.zero_grad()
        try:
            value = loss(features, targets, head, progress=step / steps)
        except InputError:  # the last step before NaN: the loss refuses what it would return
            return [*values, math.nan], head
        value.backward()
        optimizer.step()
        values.append(value.item())
    return values, head


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", KINDS)
def test_a_rate_too_large_for_the_variances_runs_away_only_without_the_bound(kind, covariance):
    free, _ = train_head(kind(2, 6, covariance=covariance, variance_bound=math.inf))
    assert not math.isfinite(free[-1]) or free[-1] > 1e8
    bounded, head = train_head(kind(2, 6, covariance=covariance))
    assert max(bounded) < 1e5
    assert head.weight.isfinite().all()


def problem(kind, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    rows = normal(4, 6, 3)
    scatter = rows.mT @ rows if kind == "full" else rows.square().sum(1)
    factor = normal(4, 2, 3) if kind == "low_rank" else None
    targets = torch.tensor([0, 1, 2, 3, 1, 0])
    moments = Moments(kind, normal(4, 3), scatter, normal(4).abs(), factor)
    return normal(4, 3), targets, normal(6, 4).abs(), normal(6, 4).abs(), moments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learnt", [False, True])
def test_within_the_bound_value_and_gradient_are_the_same_to_the_bit(kind, learnt):
    weight, targets, coefficients, towards, moments = problem(kind, torch.float32)
    coefficients.requires_grad_(learnt)
    largest = variance_term(weight, targets, coefficients, moments, 0.6).max().item()
    results = []
    for bound in (math.inf, largest):
        leaf = weight.clone().requires_grad_()
        value = variance_term(leaf, targets, coefficients, moments, 0.6, towards, bound)
        results.append((value.detach(), torch.autograd.grad(value.square().sum(), leaf)[0]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learnt", [False, True])
def test_above_the_bound_lambda_is_smaller_for_that_sample_and_class(kind, learnt):
    weight, targets, coefficients, towards, moments = problem(kind)
    lam = 0.6
    free = variance_term(weight, targets, coefficients, moments, lam)
    bound = float(free[free > 0].median())
    assert (free > bound).any()
    smaller = lam * torch.where(free > bound, bound / free, 1)
    cotangent = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    leaf = weight.clone().requires_grad_()
    unit = variance_term(leaf, targets, coefficients, moments, 1.0)
    means = variance_term(leaf, targets, coefficients, moments, lam, towards)
    means = means - variance_term(leaf, targets, coefficients, moments, lam)
    wanted = smaller * unit + means  # with lambda a constant of each sample and class
    wanted_gradient = torch.autograd.grad((wanted * cotangent).sum(), leaf)[0]

    other = weight.clone().requires_grad_()
    found = variance_term(other, targets, coefficients.requires_grad_(learnt), moments, lam, towards, bound)
    gradient = torch.autograd.grad((found * cotangent).sum(), other)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-10, atol=1e-10)


def test_logits_and_bounded_term_in_one_step_equal_both_apart():
    weight, targets, coefficients, towards, moments = problem("diagonal")
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    results = []
    for fused in (False, True):
        leaves = [features.clone().requires_grad_(), weight.clone().requires_grad_()]
        plain = leaves[0] @ leaves[1].T
        if fused:
            given: tuple[Any, ...] = (plain.detach(), targets, coefficients, towards, moments, 0.6, 5.0)
            value = adjusted_logits(*leaves, None, *given)
        else:
            value = plain + augmentation_term(leaves[1], targets, coefficients, towards, moments, 0.6, 5.0)
        results.append((value, *torch.autograd.grad(value.logsumexp(1).sum(), leaves)))
    for apart, together in zip(*results, strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", TYPES)
def test_a_loss_is_made_with_the_bound_and_can_be_made_without(kind):
    assert kind(3, 4).variance_bound == VARIANCE_BOUND
    assert kind(3, 4, variance_bound=math.inf).variance_bound == math.inf


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan])
def test_a_bound_that_is_not_positive_is_refused(bound):
    with pytest.raises(InputError, match="variance_bound must be positive"):
        ICDALoss(2, 3, variance_bound=bound)
