"""The augmentation term (lambda/2) P + lambda M of ISDA, RISDA and ICDA, written plainly; (N, C) and zero at the target.

P_{i,c} = d_c^T (sum_j coef_{i,j} Sigma_j) d_c and M_{i,c} = alpha-hat_{i,c} d_c . mu_c with d_c = w_c - w_{y_i} (eq. 4 of
arXiv 2304.13431, mathematics 2.1). Differentiable in every argument as often as one likes; `fused.py` has the same numbers
at the speed that training needs. No tensor of size N x C x A is ever formed (mathematics 7). In the shapes below N
samples, C classes, A features, r rank.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icda.functional.grouping import LabelGroups
from icda.functional.moments import Moments

PROJECTION_ELEMENTS = 1 << 26  # of the low-rank form: most numbers that its table and the products with it may hold


def reference_term(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float | Tensor,
    bound: float = math.inf,
) -> Tensor:
    """`variance_term` as the formula has it."""
    value = 0.5 * lam * quadratic_form(weight, targets, coefficients, moments)
    if bound < math.inf:
        value = value * share_within(value, bound)
    return value if towards is None else value + lam * mean_term(weight, targets, towards, moments.mean)


def quadratic_form(weight: Tensor, targets: Tensor, coefficients: Tensor, moments: Moments) -> Tensor:
    """P (N, C), zero at the target and never negative.

    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> moments = Moments("diagonal", torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.ones(2))
    >>> quadratic_form(weight, torch.tensor([0]), torch.tensor([[1.0, 0.0]]), moments)
    tensor([[0., 3.]])
    """
    scaled = coefficients * moments.scale
    if moments.kind == "full":
        images = weight @ moments.scatter  # (C, C, A): images[j, c] = Sigma_j w_c, Sigma being symmetric
        squares = scaled @ torch.linalg.vecdot(images, weight)
        own_image = LabelGroups.of(targets, len(weight)).apply(scaled, images.transpose(0, 1))
        value = _boundary(squares, own_image @ weight.T, targets)
    else:
        value = sample_variance_form(weight, targets, scaled @ moments.scatter)
        if moments.factor is not None:
            value = value + _factored(weight, targets, scaled, moments.factor)
    return value.clamp(min=0).scatter(1, targets[:, None], 0)


def sample_variance_form(weight: Tensor, targets: Tensor, variances: Tensor) -> Tensor:
    """d_c^T diag(v_i) d_c (N, C) for variances v (N, A) that each sample brings itself."""
    own = weight[targets]
    cross = variances * own
    return variances @ weight.square().T - 2 * cross @ weight.T + (cross * own).sum(1, keepdim=True)


def mean_term(weight: Tensor, targets: Tensor, towards: Tensor, mean: Tensor) -> Tensor:
    """alpha-hat_{i,c} d_c . mu_c: how far class c's mean lies beyond the boundary between y and c."""
    distance = torch.linalg.vecdot(weight, mean) - weight[targets] @ mean.T
    return (towards * distance).scatter(1, targets[:, None], 0)


def share_within(value: Tensor, bound: float) -> Tensor:
    """What each value is to be multiplied by to stay within `bound`: exactly 1 for those that do.

    >>> share_within(torch.tensor([0.0, 3.0, 40.0]), bound=10.0)
    tensor([1.0000, 1.0000, 0.2500])
    """
    return bound / value.detach().clamp(min=bound)


def _factored(weight: Tensor, targets: Tensor, coef: Tensor, factor: Tensor) -> Tensor:
    """d_c^T (sum_j coef_{i,j} F_j^T F_j) d_c (N, C), from the projections F_j w_c: a table (C, r, C), or parts of it."""
    num_classes, rank, _ = factor.shape
    step = max(1, PROJECTION_ELEMENTS // (max(len(targets), num_classes) * rank))
    value = coef.new_zeros(len(targets), num_classes)
    for rows in (slice(start, start + step) for start in range(0, num_classes, step)):
        projections = factor[rows] @ weight.T
        left = coef[:, rows, None] * projections[:, :, targets].permute(2, 0, 1)  # coef_{i,j} F_j w_y: (N, part, r)
        squares = coef[:, rows] @ projections.square().sum(1)
        value = value + _boundary(squares, left.flatten(1) @ projections.flatten(0, 1), targets)
    return value


def _boundary(squares: Tensor, cross: Tensor, targets: Tensor) -> Tensor:
    """(w_c - w_y)^T V (w_c - w_y) from w_c^T V w_c and w_y^T V w_c."""
    return squares - 2 * cross + squares.gather(1, targets[:, None])
