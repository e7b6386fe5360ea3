"""Predictions over a split and what they are worth; what a method gave to each training sample, for the log alone.

Methods are never shown which labels are wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, send_to_device
from torch import Tensor, nn

from icda.data.loader import BatchLoader
from icda.data.task import Batch, Split, Task
from icda.methods.base import Method
from icda.metrics import evaluate_predictions
from icda.models.base import FeatureClassifier, evaluating
from icda.results.run_result import Figure

EVALUATION_BATCH = 512


@torch.no_grad()
def over_split(
    modules: Sequence[nn.Module], split: Split, accelerator: Accelerator, measure: Callable[[Any], Tensor | None]
) -> Any:
    """What `measure` says of a split's inputs (N, ...), in its order; None where it is silent.

    Several processes share the work, and each has all of it.
    """
    rank, world = accelerator.process_index, accelerator.num_processes
    order = {"seed": 0, "shuffle": False, "augment": False, "weights": None, "rank": rank, "world_size": world}
    parts: list[tuple[Tensor, Tensor]] = []
    with evaluating(*modules):
        for batch in BatchLoader(split, EVALUATION_BATCH, **order).epoch(0):
            found = measure(to_device(batch, accelerator.device).inputs)
            if found is None:
                return None
            parts.append((batch.index, found.cpu()))
    if world > 1:
        parts = gather_object(parts)
    index, values = (torch.cat(part) for part in zip(*parts, strict=True))
    return torch.empty_like(values).index_copy_(0, index, values)


def predict_split(
    method: Method, models: Sequence[FeatureClassifier], split: Split, accelerator: Accelerator
) -> Tensor:
    """Logits (N, C) of a split in its own order."""
    logits: Tensor = over_split(
        [*models, method], split, accelerator, lambda inputs: method.predict(models, inputs).float()
    )
    return logits


def evaluate_split(
    method: Method, models: Sequence[FeatureClassifier], task: Task, split: Split, accelerator: Accelerator
) -> tuple[dict[str, Any], Tensor]:
    """Named metrics of a split, and the logits they come from."""
    logits = predict_split(method, models, split, accelerator)
    train_groups = task.train.groups
    metrics = evaluate_predictions(
        logits,
        split.targets,
        groups=split.groups,
        num_groups=task.num_groups,
        train_class_counts=task.class_counts,
        train_group_counts=(None if train_groups is None else torch.bincount(train_groups, minlength=task.num_groups)),
        group_names=task.group_names,
        memberships=split.memberships,
        membership_names=task.membership_names,
    )
    return metrics, logits


def group_samples(task: Task, split: Split) -> list[int]:
    """How many samples of a split each group has, in the order of `per_group_accuracy`; empty without groups."""
    if split.memberships is not None:
        return split.memberships.long().sum(dim=0).tolist()
    return [] if split.groups is None else torch.bincount(split.groups, minlength=task.num_groups).tolist()


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with inputs, targets and groups on `device`; the index stays where it is."""
    inputs, targets, groups = send_to_device(batch[:3], device, non_blocking=True)
    return Batch(inputs, targets, groups, batch.index)


def describe_samples(figures: Mapping[str, Tensor], split: Split) -> dict[str, Figure]:
    """Means and AUROCs of each figure (N,) over the samples that have one, for the log.

    `NAME_auroc_wrong` is how well a low figure marks wrong labels, `NAME_auroc_minority` how well a high one marks samples
    outside the largest group of their class; `NAME_small_classes` and `NAME_large_classes` are the means of the classes'
    means below and above their median size. What a task does not know is left out.
    """
    found: dict[str, Figure] = {}
    for name, values in figures.items():
        known = (~values.isnan()).nonzero().flatten().cpu()
        values, targets = values.cpu().double()[known], split.targets[known]
        if split.clean_targets is not None:
            wrong = targets != split.clean_targets[known]
            found |= _compare(values, wrong, (f"{name}_wrong_labels", f"{name}_right_labels"))
            found[f"{name}_auroc_wrong"] = auroc(-values, wrong)
        if split.groups is not None:
            few = minority(split.targets, split.groups)[known]
            found |= _compare(values, few, (f"{name}_minority", f"{name}_majority"))
            found[f"{name}_auroc_minority"] = auroc(values, few)
        found |= _by_class_size(name, values, targets, split.targets)
    return {name: value for name, value in found.items() if value is not None}


def minority(targets: Tensor, groups: Tensor) -> Tensor:
    """Which samples (N,) are not of the largest group of their class."""
    few = torch.zeros_like(targets, dtype=torch.bool)
    for label in targets.unique():
        rows = targets == label
        few[rows] = groups[rows] != torch.bincount(groups[rows]).argmax()
    return few


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """How often a positive sample has the higher score, ties counting half; None without both kinds."""
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return None
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0).double() - (count.double() - 1) / 2)[place]  # tied scores share their mean rank
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def _compare(values: Tensor, chosen: Tensor, names: tuple[str, str]) -> dict[str, Figure]:
    parts = zip(names, (values[chosen], values[~chosen]), strict=True)
    return {name: float(part.mean()) for name, part in parts if len(part)}


def _by_class_size(name: str, values: Tensor, targets: Tensor, every_target: Tensor) -> dict[str, Figure]:
    sizes = torch.bincount(every_target).double()
    present = torch.bincount(targets, minlength=len(sizes)) > 0
    means = torch.zeros_like(sizes).index_add(0, targets, values) / torch.bincount(targets, minlength=len(sizes))
    middle = sizes[present].median() if present.any() else 0.0
    small, large = present & (sizes < middle), present & (sizes > middle)
    parts = ((f"{name}_small_classes", small), (f"{name}_large_classes", large))
    return {key: float(means[chosen].mean()) for key, chosen in parts if small.any() and large.any()}
