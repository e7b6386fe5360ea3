"""Margins: by how much the right class's logit stands above the best of the others; distances: how far that is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.explain.passes import Pass
from icda.losses import AdjustedLoss
from icda.losses.head import Head, head_parameters
from icda.methods.base import Method

BINS = 40


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """z_y - max_{c != y} z_c (N,): above zero where the prediction is right, and the larger the safer.

    Reference: figure 5a of arXiv 2304.13431, whose margin this is.

    >>> margins(torch.tensor([[2.0, 0.5, 1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2]))
    tensor([ 1., -2.])
    """
    own = logits.gather(1, targets[:, None])[:, 0]
    rival = logits.scatter(1, targets[:, None], -torch.inf).amax(1)
    return own - rival


@torch.no_grad()
def adjusted_margins(method: Method, seen: Pass) -> Tensor | None:
    """Margins of z + phi, the logits that the loss compares in training; None where a method adjusts nothing.

    None too where the prior depends on an attribute or on the sample, which a pass does not hold. The strength is the full
    one of the end of training.
    """
    criterion = method.criterion
    prior_by_sample = method.prior_per_sample or getattr(criterion, "prior", None) is not None
    if prior_by_sample or not isinstance(criterion, AdjustedLoss):
        return None
    head: Head = (seen.weight, seen.bias) if seen.head is None else seen.head
    device = head_parameters(head)[0].device
    features, targets, logits = (value.to(device) for value in (seen.features, seen.targets, seen.logits))
    adjustment = criterion.adjustment(features, targets, head, 1.0, logits)
    if not adjustment.any():
        return None
    return margins((logits + adjustment).cpu(), seen.targets)


def margin_figures(values: Tensor, targets: Tensor, num_classes: int, groups: Tensor | None = None) -> dict[str, Any]:
    """A histogram with one row per class (and one per group) and a few numbers, all plain.

    Zero is an edge of the histogram, so that the bars left of it are exactly the samples that are wrong.
    """
    edges = edges_around_zero(values)
    figures = {
        "edges": edges.tolist(),
        "counts": histograms(values, targets, num_classes, edges),
        "mean": float(values.mean()),
        "median": float(values.quantile(0.5)) if len(values) <= 2**24 else float(values.median()),
        "share_negative": float((values < 0).double().mean()),
        "class_means": means_by(values, targets, num_classes),
    }
    if groups is not None:
        count = int(groups.max()) + 1
        figures["group_counts"] = histograms(values, groups, count, edges)
        figures["group_means"] = means_by(values, groups, count)
    return figures


def edges_around_zero(values: Tensor, bins: int = BINS) -> Tensor:
    """Evenly spaced edges that cover the values, one of them zero."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    width = (high - low) / (bins - 2) or 1.0  # two bins are kept back for rounding outwards
    below, above = -int(low // width), -int(-high // width)
    return torch.arange(-below, max(above, 1 - below) + 1, dtype=torch.float64) * width


def histograms(values: Tensor, labels: Tensor, num_labels: int, edges: Tensor) -> list[list[int]]:
    """How many values of each label fall between two edges; the last bin includes its right edge."""
    bins = len(edges) - 1
    places = (torch.searchsorted(edges, values.double(), right=True) - 1).clamp(0, bins - 1)
    counted = torch.bincount(labels * bins + places, minlength=num_labels * bins)
    return counted.view(num_labels, bins).tolist()


def means_by(values: Tensor, labels: Tensor, num_labels: int) -> list[float | None]:
    """The mean of each label's values; None where there are none."""
    sums = torch.zeros(num_labels, dtype=torch.float64).index_add_(0, labels, values.double())
    counts = torch.bincount(labels, minlength=num_labels)
    return [total / count if count else None for total, count in zip(sums.tolist(), counts.tolist(), strict=True)]


def sample_distances(logits: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Signed distance (N,) of each feature from the nearest boundary of its class: min_c (z_y - z_c) / |w_y - w_c|.

    A margin in units of the feature space, which larger weights alone do not enlarge. Below zero where the prediction
    is wrong; then it is the distance to the boundary farthest behind. Reference: section 5 of arXiv 2304.13431.

    >>> sample_distances(torch.tensor([[4.0, 0.0]]), torch.tensor([0]), torch.tensor([[2.0], [0.0]])).tolist()
    [2.0]
    """
    gaps = logits.gather(1, targets[:, None]) - logits
    lengths = torch.cdist(weight, weight)[targets]  # zero between classes with the same weights: no boundary
    distances = torch.where(lengths > 0, gaps / lengths.clamp(min=torch.finfo(lengths.dtype).tiny), torch.inf)
    return distances.scatter(1, targets[:, None], torch.inf).amin(1)
