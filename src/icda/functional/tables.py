"""ISDA, RISDA and ICDA on all samples at once, as functions of the logits alone.

With every training sample in the batch, w_c^T Sigma_j w_c' is the covariance within class j of the logits z_c and z_c', and
w_c . mu_j their mean. So the full-covariance losses need nothing of size A x A, and see the samples only through a table
Q_{y,j,c} = d_c^T Sigma_j d_c with d_c = w_c - w_y (mathematics 7).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icda.functional.augmentation import off_target
from icda.functional.grouping import LabelGroups
from icda.functional.strength import Strength


class LogitMoments(NamedTuple):
    """Means (C, C) and covariances (C, C, C) of the logits within each class: entry j is class j's."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, logits: Tensor, groups: LabelGroups, weights: Tensor) -> LogitMoments:
        """Of logits (N, C) without bias; `weights` (N,) let samples count differently. Differentiable."""
        totals = groups.sums(weights[:, None]).clamp(min=1e-12)  # (C, 1)
        mean = groups.sums(logits * weights[:, None]) / totals
        residuals = logits - mean[groups.labels]
        covariance = groups.products(residuals * weights[:, None], residuals) / totals[:, :, None]
        return cls(mean, covariance)


def icda_table(moments: LogitMoments, lam: float) -> Tensor:
    """T (C, C, C) such that coef_i @ T[y_i] = (lambda/2) P_i + lambda M_i, with coef alpha-hat and 1 at the target.

    T_{y,j,c} = (lambda/2) Q_{y,j,c}, plus lambda d_c . mu_c where j = c.
    """
    distance = moments.mean.diagonal() - moments.mean.T  # (y, c): d_c . mu_c, zero where they meet
    return 0.5 * lam * boundary_variances(moments.covariance) + torch.diag_embed(lam * distance)


def label_table(
    moments: LogitMoments, lam: float, relations: Tensor | None = None, mean_strength: float = 1.0
) -> Tensor:
    """phi (C, C) of the samples of each label: ISDA's, or with `relations` (C, C) RISDA's."""
    variances = boundary_variances(moments.covariance)
    if relations is None:
        labels = torch.arange(len(variances), device=variances.device)
        return 0.5 * lam * variances[labels, labels]
    moved = relations @ moments.mean - moments.mean  # (y, c): w_c . mu~_y
    spread = 0.5 * lam * (relations[:, :, None] * variances).sum(1)
    return spread + mean_strength * (moved - moved.diagonal()[:, None])


def boundary_variances(covariance: Tensor) -> Tensor:
    """Q (C, C, C): entry [y, j, c] is the variance of z_c - z_y over the samples of class j, never negative.

    >>> boundary_variances(torch.eye(2).expand(2, 2, 2))[0].tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    squares = covariance.diagonal(dim1=1, dim2=2)  # of class j and logit c
    return (squares[None] - 2 * covariance.transpose(0, 1) + squares.T[:, :, None]).clamp(min=0)


def icda_logits(table: Tensor, groups: LabelGroups, strength: Strength, beta: float) -> Tensor:
    """(lambda/2) P + lambda M + beta alpha (N, C) from the table of all labels; differentiable in both."""
    classes = len(table)
    coefficients = (strength.per_class / (classes - 1)).scatter(1, groups.labels[:, None], 1).to(table)
    return groups.apply(coefficients, table) + off_target(
        (beta * strength.per_sample).to(table), groups.labels, classes
    )
