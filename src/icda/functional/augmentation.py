"""The augmentation term (lambda/2) P + lambda M (N, C), and ICDA's coefficients in it: pure functions of tensors."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from icda.functional.moments import Moments
from icda.functional.strength import Strength


class Term(NamedTuple):
    """What the term is made of, besides the weight."""

    targets: Tensor
    coefficients: Tensor  # (N, C), of each class's covariance
    towards: Tensor | None  # alpha-hat (N, C), or None to leave M out
    moments: Moments
    lam: float | Tensor
    bound: float = math.inf  # of (lambda/2) P: above, lambda is smaller for that sample and class


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

    Where the first part is above `bound`, lambda is taken smaller for that sample and class, so that it equals the bound
    (mathematics 2.5). Takes a fast form where there is one and the statistics are constants, as they are in training.
    """
    term = Term(targets, coefficients, towards, moments.to(weight.dtype), lam, bound)
    parts = coefficients, towards, moments.mean, moments.scatter, moments.factor
    if moments.kind == "low_rank" or any(part is not None and part.requires_grad for part in parts):
        from icda.functional.quadratic import reference_term

        return reference_term(weight, *term)
    if torch.compiler.is_compiling():
        from icda.functional.operators import compiled_term  # registers operators, which only a graph needs

        return compiled_term(weight, term)
    from icda.functional.fused import augmentation_term

    return augmentation_term(weight, *term)


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


def off_target(values: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """A per-sample value (N,) put on every logit but the target's: a margin.

    >>> off_target(torch.tensor([0.3]), torch.tensor([1]), num_classes=3)
    tensor([[0.3000, 0.0000, 0.3000]])
    """
    return values[:, None].expand(-1, num_classes).scatter(1, targets[:, None], 0)


def icda_coefficients(
    targets: Tensor, strength: Strength, semantic: bool = True, counterfactual: bool = True
) -> tuple[Tensor, Tensor | None]:
    """What each class's covariance counts for a sample (N, C), and alpha-hat = alpha / (C - 1) where means count too."""
    towards = strength.per_class / (strength.per_class.shape[1] - 1)
    coefficients = towards if counterfactual else torch.zeros_like(towards)
    if semantic:
        coefficients = coefficients.scatter(1, targets[:, None], 1)
    return coefficients, towards if counterfactual else None
