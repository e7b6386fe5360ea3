"""Augmentation terms that depend on the label alone, those of ISDA, RISDA and SGIDA: computed once for each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from icda.functional.augmentation import variance_term
from icda.functional.moments import Moments


def risda_adjustment(
    weight: Tensor,
    targets: Tensor,
    moments: Moments,
    lam: float | Tensor,
    mean_strength: float | Tensor,
    relations: Tensor,
    mixing: Tensor | None = None,
    bound: float = math.inf,
) -> Tensor:
    """(lambda/2) d_c^T (sum_j mixing_{y,j} Sigma_j) d_c + a d_c . (sum_j relations_{y,j} mu_j - mu_y).

    Both tables are (C, C); `mixing` is `relations` unless given.
    """
    moments = moments.to(weight.dtype)
    identity = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
    shift = (relations - identity) @ moments.mean @ weight.T  # (C, C): w_c . mu~_y
    moved = shift - shift.diagonal()[:, None]
    spread = by_label(weight, targets, relations if mixing is None else mixing, moments, lam, bound)
    return spread + mean_strength * moved[targets]


def by_label(
    weight: Tensor, targets: Tensor, mixing: Tensor, moments: Moments, lam: float | Tensor, bound: float = math.inf
) -> Tensor:
    """(lambda/2) d_c^T (sum_j mixing_{y,j} Sigma_j) d_c: a table over classes, or per sample where those are fewer."""
    if len(weight) > len(targets):
        return variance_term(weight, targets, mixing[targets], moments, lam, bound=bound)
    labels = torch.arange(len(weight), device=targets.device)
    return variance_term(weight, labels, mixing, moments, lam, bound=bound)[targets]
