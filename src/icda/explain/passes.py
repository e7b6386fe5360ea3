"""What a trained network makes of the samples of a split: features, logits, mapped variances."""

from __future__ import annotations

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
from icda.functional.moments import mean_mapped_variances
from icda.losses.augmented import choose_covariance
from icda.losses.head import head_parameters
from icda.methods.base import Method
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
    """What a run logged of its running statistics: epochs, own and unrelated; empty lists where it logged nothing.

    Running statistics are those the loss reads, gathered over all epochs so far, so that they hold the features' drift too.
    """
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
