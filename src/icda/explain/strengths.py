"""Strengths: how strongly each sample is tied to each class that is not its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.explain.margins import BINS, histograms
from icda.explain.passes import Pass
from icda.functional.strength import Strength, direct_strength
from icda.losses import ICDALoss
from icda.losses.augmented import StatisticsLoss
from icda.methods.base import Method
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.base import evaluating

LAMBDA = 0.5  # the paper's lambda0, for methods that have none


def augmentation_strength(method: Method) -> float:
    """The lambda0 that a method trains with, or the paper's for one that does not augment."""
    return method.criterion.lambda0 if isinstance(method.criterion, StatisticsLoss) else LAMBDA


@torch.no_grad()
def sample_strengths(method: Method, seen: Pass) -> Strength:
    """alpha_{i,c} and alpha_i as the method itself gives them out, or by angles where it has none of its own.

    Meta-ICDA's alpha_i come from its strength network, those of `icda` from its loss; every other method is read by
    the angles of section 4.1, so that runs can be compared.
    """
    criterion = method.criterion
    if not isinstance(criterion, ICDALoss):
        return direct_strength(seen.features, seen.targets, seen.weight)
    strength = criterion.strength(seen.features, seen.targets, seen.weight)
    if isinstance(method, MetaICDAMethod):
        device = method.characteristics.proportions.device
        described = method.describe(
            *(value.to(device) for value in (seen.logits, seen.features, seen.targets, seen.weight, seen.index))
        )
        with evaluating(method):
            learned = method.strength_network(described, seen.targets.to(device)).cpu()
        strength = strength._replace(per_sample=learned)
    return strength


def tie_matrix(per_class: Tensor, targets: Tensor) -> Tensor:
    """Mean strength (C, C) of the samples of class row towards class column; the diagonal is zero."""
    classes = per_class.shape[1]
    sums = torch.zeros(classes, classes, dtype=torch.float64).index_add_(0, targets, per_class.double())
    counts = torch.bincount(targets, minlength=classes).clamp(min=1)
    return (sums / counts[:, None]).fill_diagonal_(0)


def strength_figures(strength: Strength, targets: Tensor) -> dict[str, Any]:
    """Histograms with one row per class, and who is tied to whom.

    `counts` are of each sample's strongest tie, max_c alpha_{i,c}; `sample_counts` of its margin strength alpha_i.
    """
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    classes = strength.per_class.shape[1]
    return {
        "edges": edges.tolist(),
        "counts": histograms(strength.per_class.amax(1), targets, classes, edges),
        "sample_counts": histograms(strength.per_sample, targets, classes, edges),
        "towards": tie_matrix(strength.per_class, targets).tolist(),
    }


def most_tied(strength: Strength, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places of the samples with the strongest ties, the class each is tied to, and how strongly; strongest first.

    A sample whose features point to no other class at all has no tie and is left out: there may be fewer than `top`.
    """
    strongest, towards = strength.per_class.max(1)
    places = torch.argsort(strongest, descending=True, stable=True)[:top]
    places = places[strongest[places] > 0]
    return places, towards[places], strongest[places]
