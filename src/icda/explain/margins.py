"""What a trained network makes of the samples of a split: features, margins, distances, strengths, variances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from icda.data.generators import generator_for
from icda.data.task import Split, Task
from icda.errors import InputError
from icda.functional.confusion import count_confusions
from icda.functional.mapped_variance import mean_mapped_variances
from icda.functional.strength import Strength, direct_strength
from icda.losses import AdjustedLoss, ICDALoss
from icda.losses.augmented import StatisticsLoss, choose_covariance
from icda.losses.head import Head, head_parameters
from icda.methods.base import Method
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.base import FeatureClassifier, evaluating
from icda.statistics import ClassStatistics

BATCH = 512
OWN, UNRELATED = "mapped_variance_own", "mapped_variance_unrelated"  # as `LossMethod` logs them


@dataclass(frozen=True)
class Pass:
    """A network's view of some samples of a split, on the CPU; entry i belongs to position `index[i]` of the split.

    `logits` are the network's own, `predicted` (N,) is what the method's prediction rule says.
    """

    index: Tensor
    features: Tensor
    logits: Tensor
    predicted: Tensor
    targets: Tensor
    groups: Tensor | None
    weight: Tensor
    bias: Tensor | None
    head: nn.Module | None = None  # the layer itself, for losses that train another than a plain linear one

    @property
    def num_classes(self) -> int:
        return int(self.logits.shape[1])

    @cached_property
    def statistics(self) -> ClassStatistics:
        """Class statistics of these features, so that both are of one mind; any method has them."""
        classes, size = self.num_classes, self.features.shape[1]
        statistics = ClassStatistics(classes, size, choose_covariance("auto", classes, size))
        statistics.update(self.features, self.targets)
        return statistics

    @cached_property
    def confusion(self) -> Tensor:
        """How often each class (row) is taken for each (column), as shares (C, C)."""
        counts = count_confusions(self.predicted, self.targets, self.num_classes).double()
        return counts / counts.sum(1, keepdim=True).clamp(min=1)

    def __len__(self) -> int:
        return len(self.index)


@torch.no_grad()
def run_pass(
    method: Method, networks: Sequence[FeatureClassifier], split: Split, positions: Tensor | None = None
) -> Pass:
    """Run the first network over a split, or over `positions` of it, without augmentation and in evaluation mode."""
    positions = torch.arange(len(split)) if positions is None else positions
    network = networks[0]
    features, logits, predicted = [], [], []
    plain = type(method).predict is Method.predict  # then one forward pass answers both questions
    with evaluating(*networks, method):
        for chunk in positions.split(BATCH):
            inputs = on_device(split.batch(chunk).inputs, network)
            output = network(inputs)
            answer = output.logits if plain else method.predict(networks, inputs)
            features.append(output.features.float().cpu())
            logits.append(output.logits.float().cpu())
            predicted.append(answer.argmax(1).cpu())
    weight, bias = head_parameters(network.head)
    return Pass(
        index=positions,
        features=torch.cat(features),
        logits=torch.cat(logits),
        predicted=torch.cat(predicted),
        targets=split.targets[positions],
        groups=None if split.groups is None else split.groups[positions],
        weight=weight.detach().float().cpu(),
        bias=None if bias is None else bias.detach().float().cpu(),
        head=network.head,
    )


def named_split(task: Task, name: str) -> Split:
    """A split by its name, or an error that lists those the task has."""
    splits = task.splits()
    if name not in splits:
        raise InputError(f"task {task.name!r} has no {name} split: choose from {', '.join(splits)}.")
    return splits[name]


def subsample(split: Split, limit: int, seed: int) -> Tensor:
    """At most `limit` positions of a split, in order; which ones depends on the seed alone."""
    if len(split) <= limit:
        return torch.arange(len(split))
    return torch.randperm(len(split), generator=generator_for(seed, "explain"))[:limit].sort().values


def balanced_sample(split: Split, count: int, seed: int) -> Tensor:
    """`count` positions spread over groups, or over classes where there are none; the same for every model."""
    labels = split.targets if split.groups is None else split.groups
    order = torch.randperm(len(split), generator=generator_for(seed, "explain pictures"))
    chosen = order[in_turns(labels[order])[:count]]
    return chosen[torch.argsort(labels[chosen], stable=True)]


def in_turns(labels: Tensor) -> Tensor:
    """Places of labels (N,): the first of every label, then the second of each, and so on."""
    ranks = torch.empty_like(labels)
    for label in torch.unique(labels):
        members = (labels == label).nonzero().flatten()
        ranks[members] = torch.arange(len(members))
    return torch.argsort(ranks * (int(labels.max()) + 1) + labels, stable=True)


def on_device(inputs: Any, network: nn.Module) -> Any:
    """Inputs, a tensor or a dict of tensors, where the network is."""
    device = next(network.parameters()).device
    if isinstance(inputs, dict):
        return {name: value.to(device) for name, value in inputs.items()}
    return inputs.to(device)


def logged_variances(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What a run logged of its running statistics: epochs, own and unrelated; empty lists where it logged nothing."""
    logged = [record for record in history if OWN in record]
    return {
        "epochs": [record["epoch"] for record in logged],
        "own": [record[OWN] for record in logged],
        "unrelated": [record[UNRELATED] for record in logged if UNRELATED in record],
    }


def variance_figures(seen: Pass, history: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Logged mapped variances, and under `trained` those of the trained network's own features.

    Where a run logged none (cross entropy keeps no statistics) the lists hold the trained network's figures alone.
    """
    trained = mean_mapped_variances(seen.weight, seen.statistics.moments())
    figures: dict[str, Any] = logged_variances(history)
    if not figures["epochs"]:
        last = history[-1]["epoch"] if history else 0
        unrelated = [] if trained.unrelated is None else [trained.unrelated]
        figures = {"epochs": [last], "own": [trained.own], "unrelated": unrelated}
    return figures | {"trained": trained._asdict()}


BINS = 40
LAMBDA = 0.5  # the paper's lambda0, for methods that have none


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """z_y - max_{c != y} z_c (N,), as in figure 5a of arXiv 2304.13431: above zero where the prediction is right.

    >>> margins(torch.tensor([[2.0, 0.5, 1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2]))
    tensor([ 1., -2.])
    """
    own = logits.gather(1, targets[:, None])[:, 0]
    rival = logits.scatter(1, targets[:, None], -torch.inf).amax(1)
    return own - rival


@torch.no_grad()
def adjusted_margins(method: Method, seen: Pass) -> Tensor | None:
    """Margins of z + phi, the logits that the loss compares at the end of training; None where a method adjusts nothing.

    None too where the prior depends on an attribute or on the sample, which a pass does not hold.
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
    """A histogram per class (and group) and a few numbers; zero is an edge, so that the bars left of it are wrong."""
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

    A margin in units of the feature space, which larger weights alone do not enlarge; below zero where the prediction
    is wrong. Reference: section 5 of arXiv 2304.13431.

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
    """alpha_{i,c} and alpha_i as the method itself gives them, or by the angles of section 4.1 where it has none."""
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
    """Histograms of each sample's strongest tie and of alpha_i, a row per class, and who is tied to whom."""
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    classes = strength.per_class.shape[1]
    return {
        "edges": edges.tolist(),
        "counts": histograms(strength.per_class.amax(1), targets, classes, edges),
        "sample_counts": histograms(strength.per_sample, targets, classes, edges),
        "towards": tie_matrix(strength.per_class, targets).tolist(),
    }
