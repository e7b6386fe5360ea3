"""A small part of a task, for a quick look."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.splits import shuffled_by_class
from icda.data.task import Split, Task
from icda.errors import InputError


def take_subset(task: Task, subset: float, seed: int = 0, by_groups: bool = True) -> Task:
    """The task with a share of its samples: `subset` in (0, 1), or a number of training samples above 1.

    Train, validation and test shrink by the same share. Each cell, a class or a class within a group, keeps its part of
    its split and at least one sample, so that a rare group grows a little and never vanishes. Overlapping groups are
    not cells and may vanish. Without `by_groups` the groups of train and validation are not read and the classes are the
    cells there. Metadata stay as they are. Figures of a subset are not those of the task: its name is the
    same and its `data_hash` is not.

    >>> from icda.data import create_task
    >>> whole = create_task("digits_lt")
    >>> part = take_subset(whole, 0.1)
    >>> len(whole.train), len(part.train), part.class_counts.tolist()
    (287, 29, [10, 6, 4, 3, 1, 1, 1, 1, 1, 1])
    """
    cells = {name: _cells(split, by_groups or name == "test") for name, split in task.splits().items()}
    share, total = _share(task, subset, len(cells["train"].unique()))
    if share == 1:
        return task
    parts = {}
    for name, split in task.splits().items():
        if name == "metadata":
            continue
        size = total if name == "train" else round(share * len(split))
        members = [own for own in shuffled_by_class(cells[name], generator_for(seed, "subset", name)) if len(own)]
        sizes = cell_sizes([len(own) for own in members], size)
        chosen = torch.cat([own[:kept] for own, kept in zip(members, sizes, strict=True)])
        parts[name] = split.subset(chosen.sort().values)
    kept = f"{len(parts['train'])} of {len(task.train)}"
    story = f"{task.description} A subset: {kept} training samples, data seed {seed}."
    return replace(task, description=story.strip(), **parts)  # type: ignore[arg-type]


def _share(task: Task, subset: float, cells: int) -> tuple[float, int]:
    """What share is kept, and how many training samples that is."""
    size = len(task.train)
    expectation = "expected a share between 0 and 1, or a number of training samples above 1"
    if isinstance(subset, bool) or not math.isfinite(subset) or subset <= 0 or subset == 1:
        hint = ": 1 could mean all or one; leave it out for the whole task" if subset == 1 else ""
        raise InputError(f"subset is {subset}, {expectation}{hint}.")
    if subset < 1:
        return subset, max(round(subset * size), cells)
    if subset != int(subset):
        raise InputError(f"subset is {subset}, {expectation}: above 1 it must be a whole number.")
    if subset > size:
        raise InputError(f"subset is {subset:g}, but task {task.name!r} has {size} training samples: ask for fewer.")
    if subset < cells:
        raise InputError(
            f"subset is {subset:g}, but task {task.name!r} has {cells} cells (class, or class within a group) with "
            f"training samples and each keeps one: ask for {cells} or more."
        )
    return subset / size, int(subset)


def _cells(split: Split, by_groups: bool) -> Tensor:
    """The number (N,) of each sample's cell: class x group, or the class where groups are not known or not asked for."""
    if not by_groups or split.groups is None:
        return split.targets
    return split.targets * (int(split.groups.max()) + 1) + split.groups


def cell_sizes(counts: list[int], total: int) -> list[int]:
    """Sizes that sum to `total` and are as proportional to `counts` as whole numbers from 1 upwards can be.

    Each cell first gets its quota rounded down, but at least 1. What is then missing or too much goes, one by one, to or
    from the cells that are furthest from their quotas.

    >>> cell_sizes([3498, 184, 56, 1057], 100)
    [73, 4, 1, 22]
    """
    total = min(max(total, len(counts)), sum(counts))
    quotas = [total * count / sum(counts) for count in counts]
    sizes = [max(1, math.floor(quota)) for quota in quotas]
    while sum(sizes) < total:
        most = max(range(len(sizes)), key=lambda cell: quotas[cell] - sizes[cell])
        sizes[most] += 1
    while sum(sizes) > total:
        spare = [cell for cell in range(len(sizes)) if sizes[cell] > 1]
        sizes[max(spare, key=lambda cell: sizes[cell] - quotas[cell])] -= 1
    return sizes
