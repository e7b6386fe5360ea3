"""The terms that logit adjustments share; each is (N, C) and zero at the target."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icda.losses.terms.fused import augmentation_term, share_within
from icda.losses.terms.quadratic import quadratic_form
from icda.statistics import Moments


def variance_term(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    moments: Moments,
    lam: float | Tensor,
    towards: Tensor | None = None,
    bound: float = math.inf,
) -> Tensor:
    """(lambda/2) d_c^T (sum_j coef_{i,j} Sigma_j) d_c, plus lambda alpha-hat_{i,c} d_c . mu_c when `towards` is alpha-hat.

    Where the first part is above `bound`, lambda is taken smaller for that sample and class, so that it equals the bound.
    Takes the fused form where there is one and the statistics are constants, as they are in training.
    """
    moments = moments.to(weight.dtype)
    constant = not any(part is not None and part.requires_grad for part in _leaves(coefficients, towards, moments))
    if constant and moments.kind != "low_rank":
        if torch.compiler.is_compiling():
            return _compiled_term(weight, targets, coefficients, towards, moments, lam, bound)
        return augmentation_term(weight, targets, coefficients, towards, moments, lam, bound)
    value = 0.5 * lam * quadratic_form(weight, targets, coefficients, moments)
    if bound < math.inf:
        value = value * share_within(value, bound)
    return value if towards is None else value + lam * mean_term(weight, targets, towards, moments.mean)


def mean_term(weight: Tensor, targets: Tensor, towards: Tensor, mean: Tensor) -> Tensor:
    """alpha-hat_{i,c} d_c . mu_c: how far class c's mean lies beyond the boundary between y and c."""
    distance = torch.linalg.vecdot(weight, mean) - weight[targets] @ mean.T
    return (towards * distance).scatter(1, targets[:, None], 0)


def off_target(values: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """A per-sample value (N,) put on every logit but the target's: a margin.

    >>> off_target(torch.tensor([0.3]), torch.tensor([1]), num_classes=3)
    tensor([[0.3000, 0.0000, 0.3000]])
    """
    return values[:, None].expand(-1, num_classes).scatter(1, targets[:, None], 0)


def distinct_labels(targets: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Labels (U,) for which a term that depends on the label alone is computed, and the place of each sample among them.

    They are those present; a compiled graph, whose shapes cannot depend on labels, takes all classes or all samples.

    >>> distinct_labels(torch.tensor([4, 2, 4]), num_classes=5)
    (tensor([2, 4]), tensor([1, 0, 1]))
    """
    if not torch.compiler.is_compiling():
        labels, places = torch.unique(targets, return_inverse=True)
        return labels, places
    if num_classes <= len(targets):
        return torch.arange(num_classes, device=targets.device), targets
    return targets, torch.arange(len(targets), device=targets.device)


def _compiled_term(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float | Tensor,
    bound: float,
) -> Tensor:
    from icda.losses.terms.operators import augmentation  # registers operators, which only a graph needs

    parts = moments.mean, moments.scatter, moments.scale, moments.kind
    factor = lam if isinstance(lam, Tensor) else torch.tensor(lam, dtype=torch.float64)
    limit = None if bound == math.inf else float(bound)
    return augmentation(weight, targets, coefficients, towards, *parts, factor, limit)[0]


def _leaves(coefficients: Tensor, towards: Tensor | None, moments: Moments) -> tuple[Tensor | None, ...]:
    return coefficients, towards, moments.mean, moments.scatter, moments.factor
