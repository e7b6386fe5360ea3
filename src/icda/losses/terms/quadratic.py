"""P_{i,c} = d_c^T (sum_j coef_{i,j} Sigma_j) d_c with d_c = w_c - w_{y_i}, written plainly.

Differentiable in every argument as often as one likes; `fused.py` has the same numbers at the speed training needs. No
tensor of size N x C x A is ever formed (mathematics 7). In the shapes below N samples, C classes, A features, r rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icda.statistics import Moments
from icda.statistics.grouping import LabelGroups

PROJECTION_ELEMENTS = 1 << 26  # of the low-rank form: most numbers that its table and the products with it may hold


def quadratic_form(weight: Tensor, targets: Tensor, coefficients: Tensor, moments: Moments) -> Tensor:
    """P (N, C), zero at the target and never negative.

    >>> weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> moments = Moments("diagonal", torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.ones(2))
    >>> quadratic_form(weight, torch.tensor([0]), torch.tensor([[1.0, 0.0]]), moments)
    tensor([[0., 3.]])
    """
    scaled = coefficients * moments.scale
    if moments.kind == "full":
        value = _full(weight, targets, scaled, moments.scatter)
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


def _full(weight: Tensor, targets: Tensor, coef: Tensor, scatter: Tensor) -> Tensor:
    images = weight @ scatter  # (C, C, A): images[j, c] = Sigma_j w_c, Sigma being symmetric
    squares = torch.linalg.vecdot(images, weight)
    groups = LabelGroups.of(targets)
    own_image = groups.apply(coef, images[:, groups.labels].transpose(0, 1))
    return _assemble(coef @ squares, own_image @ weight.T, targets)


def _factored(weight: Tensor, targets: Tensor, coef: Tensor, factor: Tensor) -> Tensor:
    num_classes, rank = factor.shape[:2]
    groups = None if torch.compiler.is_compiling() else LabelGroups.of(targets)
    kept = 1 if groups is None else len(groups.labels)  # the graph keeps one product per label
    if kept * num_classes**2 * rank > PROJECTION_ELEMENTS:
        return _factored_in_parts(weight, targets, coef, factor)
    projections = factor @ weight.T  # (C, r, C): F_j w_c
    if groups is None:  # one shape whatever the labels: N C r numbers more
        left = coef[:, :, None] * projections[:, :, targets].permute(2, 0, 1)
        return _assemble(coef @ projections.square().sum(1), left.flatten(1) @ projections.flatten(0, 1), targets)
    products = [
        block @ torch.linalg.vecdot(projections[:, :, label, None], projections, dim=1)
        for label, block in zip(groups.labels.tolist(), groups.blocks(coef), strict=True)
    ]
    cross = torch.cat(products)[torch.argsort(torch.argsort(groups.slots))]
    return _assemble(coef @ projections.square().sum(1), cross, targets)


def _factored_in_parts(weight: Tensor, targets: Tensor, coef: Tensor, factor: Tensor) -> Tensor:
    """The same without all projections at once, which take C x r x C numbers (6.4 GB at C = 10,000 and r = 16)."""
    num_classes, rank, _ = factor.shape
    size = max(1, PROJECTION_ELEMENTS // (num_classes * rank))
    squares = torch.cat([(part @ weight.T).square().sum(1) for part in factor.split(size)])
    groups = LabelGroups.of(targets)
    images = []
    for label, block in zip(groups.labels.tolist(), groups.blocks(coef), strict=True):
        projected = factor @ weight[label]  # (C, r)
        images.append((block[:, :, None] * projected).flatten(1) @ factor.flatten(0, 1))  # V_i w_y (n, A)
    own_image = torch.cat(images)[torch.argsort(torch.argsort(groups.slots))]
    return _assemble(coef @ squares, own_image @ weight.T, targets)


def _assemble(squares: Tensor, cross: Tensor, targets: Tensor) -> Tensor:
    """(w_c - w_y)^T V (w_c - w_y) from w_c^T V w_c and w_y^T V w_c."""
    return squares - 2 * cross + squares.gather(1, targets[:, None])
