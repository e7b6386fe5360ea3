"""What is about to be trained, in words: shown before the first epoch."""

from __future__ import annotations

from collections.abc import Sequence

from icda.data.task import Task
from icda.models.base import FeatureClassifier

LISTED = 12  # classes; of more only the extremes are named


def describe_run(task: Task, model: str, networks: Sequence[FeatureClassifier], method: str) -> str:
    """Classes with their counts, the splits with their sizes, model, parameters and method."""
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in task.splits().items())
    numbers = [sum(value.numel() for value in network.parameters()) for network in networks]
    several = f"{len(networks)} times " if len(networks) > 1 else ""
    return "\n".join(
        [
            f"task {task.name}: {sizes} samples",
            f"{task.num_classes} classes, training samples of each: {_counts(task)}",
            f"model {model}: {several}{numbers[0]:,} parameters; method {method}",
        ]
    )


def _counts(task: Task) -> str:
    counts = task.class_counts.tolist()
    named = [f"{task.class_name(number)} {count:,}" for number, count in enumerate(counts)]
    if len(named) <= LISTED:
        return ", ".join(named)
    order = sorted(range(len(counts)), key=counts.__getitem__)
    return f"from {named[order[0]]} to {named[order[-1]]}"
