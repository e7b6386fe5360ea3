"""Cutting samples into disjoint parts, and taking a small part of a task for a quick look."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.task import Source, Split, Task
from icda.errors import InputError


def cut_splits(
    source: Source,
    targets: Tensor,
    groups: Tensor | None = None,
    memberships: Tensor | None = None,
    **rows: Tensor | None,
) -> dict[str, Any]:
    """Keywords of `Task`: each split has the rows given under its name, and their entries of the other tensors."""
    parts: dict[str, Any] = dict.fromkeys(("train", "validation", "test", "metadata"))
    for name, own in rows.items():
        if own is not None:
            known = [None if values is None else values[own] for values in (groups, memberships)]
            parts[name] = Split(source, own, targets[own], known[0], memberships=known[1])
    return parts


def shuffled_by_class(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The positions of each label 0, 1, ..., in random order."""
    order = torch.randperm(len(labels), generator=generator)
    by_label = order[labels[order].argsort(stable=True)]
    return list(by_label.split(torch.bincount(labels).tolist()))


def take_per_class(labels: Tensor, amounts: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """Disjoint random sets of positions with `amounts[k]` samples of every class in set k, then one with all the rest."""
    chunks = []
    for label, positions in enumerate(shuffled_by_class(labels, generator)):
        rest = len(positions) - sum(amounts)
        if rest < 0:
            raise InputError(f"class {label} has {len(positions)} samples, {sum(amounts)} are needed: take fewer.")
        chunks.append(positions.split([*amounts, rest]))
    return [torch.cat(part).sort().values for part in zip(*chunks, strict=True)]


def stratified_split(labels: Tensor, shares: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Disjoint random sets of positions holding `shares[k]` of every class, rounded, then one with all the rest.

    A class too small for its share stays whole in the rest, which is why training takes the rest.
    """
    chunks = []
    for positions in shuffled_by_class(labels, generator):
        sizes = [round(share * len(positions)) for share in shares]
        chunks.append(positions.split([*sizes, len(positions) - sum(sizes)]))
    return [torch.cat(part).sort().values for part in zip(*chunks, strict=True)]


def take_subset(task: Task, subset: float, seed: int = 0, by_groups: bool = True) -> Task:
    """The task with a share of its samples: `subset` in (0, 1), or a number of training samples above 1.

    Train, validation and test shrink by the same share; metadata stay. Each cell, a class or a class within a group,
    keeps its part of its split and at least one sample. Without `by_groups` the groups of train and validation are not
    read and the classes are the cells there. The name stays, the `data_hash` does not.
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
    kept = f"{len(parts['train'])} of {len(task.train)} training samples, data seed {seed}"
    story = f"{task.description} A subset: {kept}."
    return replace(task, description=story.strip(), **parts)  # type: ignore[arg-type]


def _share(task: Task, subset: float, cells: int) -> tuple[float, int]:
    """What share is kept, and how many training samples that is."""
    size = len(task.train)
    is_number = not isinstance(subset, bool) and math.isfinite(subset) and subset > 0
    if not is_number or subset == 1 or int(subset) not in (0, subset):
        hint = ": 1 could mean all or one; leave it out for the whole task" if subset == 1 else ""
        raise InputError(f"subset is {subset}, expected a share below 1, or a whole number of training samples{hint}.")
    if subset < 1:
        return subset, max(round(subset * size), cells)
    if not cells <= subset <= size:
        raise InputError(
            f"subset is {subset:g}, but task {task.name!r} has {size} training samples in {cells} cells (class, or class "
            f"within a group), and each cell keeps one: ask for {cells} to {size}."
        )
    return subset / size, int(subset)


def _cells(split: Split, by_groups: bool) -> Tensor:
    """The number (N,) of each sample's cell: class x group, or the class where groups are not known or not asked for."""
    if not by_groups or split.groups is None:
        return split.targets
    return split.targets * (int(split.groups.max()) + 1) + split.groups


def cell_sizes(counts: list[int], total: int) -> list[int]:
    """Sizes that sum to `total` and are as proportional to `counts` as whole numbers from 1 upwards can be."""
    total = min(max(total, len(counts)), sum(counts))
    quotas = [total * count / sum(counts) for count in counts]
    sizes = [max(1, math.floor(quota)) for quota in quotas]
    while sum(sizes) < total:
        sizes[max(range(len(sizes)), key=lambda cell: quotas[cell] - sizes[cell])] += 1
    while sum(sizes) > total:
        spare = [cell for cell in range(len(sizes)) if sizes[cell] > 1]
        sizes[max(spare, key=lambda cell: sizes[cell] - quotas[cell])] -= 1
    return sizes
