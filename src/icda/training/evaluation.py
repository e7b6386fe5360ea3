"""Predictions over a split, and what they are worth."""

from collections.abc import Callable, Iterator, Sequence
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

EVALUATION_BATCH = 512


@torch.no_grad()
def predict_split(
    method: Method, models: Sequence[FeatureClassifier], split: Split, accelerator: Accelerator
) -> Tensor:
    """Logits (N, C) of a split in its own order; several processes share the work."""
    rank, world = accelerator.process_index, accelerator.num_processes
    parts: list[tuple[Tensor, Tensor]] = []
    with evaluating(*models, method):
        for batch in _batches(split, rank=rank, world_size=world):
            logits = method.predict(models, to_device(batch, accelerator.device).inputs)
            parts.append((batch.index, logits.float().cpu()))
    if world > 1:
        parts = gather_object(parts)
    index, logits = (torch.cat(part) for part in zip(*parts, strict=True))
    return torch.empty_like(logits).index_copy_(0, index, logits)


@torch.no_grad()
def over_split(
    modules: Sequence[nn.Module], split: Split, accelerator: Accelerator, measure: Callable[[Any], Tensor | None]
) -> Any:
    """What `measure` says of a split's inputs (N, ...), in its order, every process all of it; None where it is silent."""
    parts: list[Tensor] = []
    with evaluating(*modules):
        for batch in _batches(split):
            found = measure(to_device(batch, accelerator.device).inputs)
            if found is None:
                return None
            parts.append(found.cpu())
    return torch.cat(parts)


def _batches(split: Split, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
    ranks = {"rank": rank, "world_size": world_size}
    return BatchLoader(split, EVALUATION_BATCH, seed=0, shuffle=False, augment=False, weights=None, **ranks).epoch(0)


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
    moved = send_to_device((batch.inputs, batch.targets, batch.groups), device, non_blocking=True)
    return Batch(*moved, batch.index)
