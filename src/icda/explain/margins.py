"""What a pass says of each sample: margins, distances, strengths.

Margins: by how much the right class's logit stands above the best of the others; distances: how far that is; strengths:
how strongly the sample is tied to each class that is not its own.
"""

from typing import Any

import torch
from torch import Tensor

from icda.explain.passes import Pass
from icda.functional.strength import Strength, direct_strength
from icda.losses import AdjustedLoss, ICDALoss
from icda.losses.augmented import StatisticsLoss
from icda.losses.head import Head, head_parameters
from icda.methods.base import Method
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.base import evaluating

BINS = 40
LAMBDA = 0.5  # the paper's lambda0, for methods that have none


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
