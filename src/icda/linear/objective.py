"""The losses on fixed features, all samples at once, as functions of the logits alone.

With every training sample in the batch, w_c^T Sigma_j w_c' is the covariance within class j of the logits z_c and z_c', and
w_c . mu_j their mean. So the full-covariance ICDA loss needs nothing of size A x A: it costs what cross entropy costs, one
product with the features forward and one backward, plus terms of size N x C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.terms.augmentation import off_target
from icda.losses.terms.prior import prior_term
from icda.statistics.grouping import LabelGroups
from icda.strength import Strength

LossName = Literal["ce", "la", "isda", "risda", "icda"]


@dataclass(frozen=True)
class LossSettings:
    """Which loss, and how strong its terms are; `lam` is lambda at the end of training."""

    name: LossName = "icda"
    lam: float = 0.5
    beta: float = 0.1
    mean_strength: float = 1.0  # RISDA's a


class LogitMoments:
    """Means (C, C) and covariances (C, C, C) of the logits within each class: entry j is class j's.

    `weights` let samples count differently. Differentiable in the logits, so that a head is trained through them.
    """

    def __init__(self, logits: Tensor, groups: LabelGroups, weights: Tensor) -> None:
        totals = groups.sums(weights[:, None]).clamp(min=1e-12)  # (C, 1)
        self.mean = groups.sums(logits * weights[:, None]) / totals
        residuals = logits - self.mean[groups.places]
        self.covariance = groups.products(residuals * weights[:, None], residuals) / totals[:, :, None]


def adjustment(
    settings: LossSettings,
    logits: Tensor,
    targets: Tensor,
    groups: LabelGroups,
    class_counts: Tensor | None,
    strength: Strength | None,
    weights: Tensor,
    relations: Tensor | None = None,
) -> Tensor | None:
    """phi (N, C) of a loss from bias-free logits of all samples; None for cross entropy, and LA without `class_counts`."""
    if settings.name == "ce":
        return None
    if settings.name == "la":
        return None if class_counts is None else prior_term(class_counts, targets, logits.dtype)
    moments = LogitMoments(logits, groups, weights)
    num_classes = logits.shape[1]
    identity = torch.eye(num_classes, dtype=logits.dtype, device=logits.device)
    if settings.name == "isda":
        return 0.5 * settings.lam * boundary_variances(moments, identity)[targets]
    if settings.name == "risda":
        assert relations is not None
        spread = 0.5 * settings.lam * boundary_variances(moments, relations)
        shift = (relations - identity) @ moments.mean  # row y: w_c . mu~_y
        return (spread + settings.mean_strength * (shift - shift.diagonal()[:, None]))[targets]
    assert strength is not None
    return _icda(settings, moments, targets, groups, class_counts, strength)


def boundary_variances(moments: LogitMoments, mixing: Tensor) -> Tensor:
    """d_c^T (sum_j mixing_{y,j} Sigma_j) d_c for every pair (y, c): a table over classes."""
    mixed = torch.einsum("yj,jcd->ycd", mixing, moments.covariance)
    rows = torch.arange(len(mixing), device=mixing.device)
    squares = mixed.diagonal(dim1=1, dim2=2)
    return squares - 2 * mixed[rows, rows] + squares.gather(1, rows[:, None])


def _icda(
    settings: LossSettings,
    moments: LogitMoments,
    targets: Tensor,
    groups: LabelGroups,
    class_counts: Tensor | None,
    strength: Strength,
) -> Tensor:
    num_classes = strength.per_class.shape[1]
    towards = strength.per_class / (num_classes - 1)
    coefficients = towards.scatter(1, targets[:, None], 1)
    squares = coefficients @ moments.covariance.diagonal(dim1=1, dim2=2)
    # sum_j coef_{i,j} w_y^T Sigma_j w_c: for each label one product with that label's rows of the table.
    by_label = moments.covariance.transpose(0, 1)[groups.labels]
    cross = groups.apply(coefficients, by_label)
    spread = squares - 2 * cross + squares.gather(1, targets[:, None])
    own = moments.mean.diagonal() - moments.mean.T[targets]  # d_c . mu_c
    phi = 0.5 * settings.lam * spread.clamp(min=0) + settings.lam * towards * own
    if class_counts is not None:
        phi = phi + prior_term(class_counts, targets, phi.dtype)
    phi = phi.scatter(1, targets[:, None], 0)
    return phi + off_target(settings.beta * strength.per_sample, targets, num_classes).to(phi)


def weighted_cross_entropy(adjusted: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return (weights * F.cross_entropy(adjusted, targets, reduction="none")).sum() / weights.sum()
