"""Cutting one set of samples into disjoint parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Source, Split
from icda.errors import InputError


def cut_splits(
    source: Source,
    targets: Tensor,
    groups: Tensor | None = None,
    memberships: Tensor | None = None,
    **rows: Tensor | None,
) -> dict[str, Any]:
    """Keywords of `Task`: each split has the rows given under its name, and their entries of the other tensors.

    >>> from icda.data.sources import FeatureArray
    >>> targets = torch.tensor([0, 1, 0, 1])
    >>> parts = cut_splits(FeatureArray(torch.eye(4)), targets, train=torch.arange(2), test=torch.arange(2, 4))
    >>> len(parts["train"]), parts["test"].rows.tolist(), parts["metadata"]
    (2, [2, 3], None)
    """

    def split(own: Tensor) -> Split:
        known = [None if values is None else values[own] for values in (groups, memberships)]
        return Split(source, own, targets[own], known[0], memberships=known[1])

    names = ("train", "validation", "test", "metadata")
    return {name: None if (own := rows.get(name)) is None else split(own) for name in names}


def shuffled_by_class(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The positions of each label 0, 1, ..., in random order."""
    order = torch.randperm(len(labels), generator=generator)
    by_label = order[labels[order].argsort(stable=True)]
    return list(by_label.split(torch.bincount(labels).tolist()))


def take_per_class(labels: Tensor, amounts: Sequence[int], generator: torch.Generator) -> list[Tensor]:
    """Disjoint random sets of positions with `amounts[k]` samples of every class in set k, then one with all the rest.

    >>> labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    >>> [len(part) for part in take_per_class(labels, [1, 2], torch.Generator())]
    [2, 4, 1]
    """
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

    >>> labels = torch.tensor([0] * 10 + [1])
    >>> test, train = stratified_split(labels, [0.2], torch.Generator())
    >>> labels[test].tolist(), len(train)
    ([0, 0], 9)
    """
    chunks = []
    for positions in shuffled_by_class(labels, generator):
        sizes = [round(share * len(positions)) for share in shares]
        chunks.append(positions.split([*sizes, len(positions) - sum(sizes)]))
    return [torch.cat(part).sort().values for part in zip(*chunks, strict=True)]
