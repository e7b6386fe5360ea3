"""Cutting one set of samples into disjoint parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.errors import InputError


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
    parts: list[list[Tensor]] = [[] for _ in range(len(amounts) + 1)]
    for label, positions in enumerate(shuffled_by_class(labels, generator)):
        rest = len(positions) - sum(amounts)
        if rest < 0:
            raise InputError(f"class {label} has {len(positions)} samples, {sum(amounts)} are needed: take fewer.")
        for part, chunk in zip(parts, positions.split([*amounts, rest]), strict=True):
            part.append(chunk)
    return [torch.cat(part).sort().values for part in parts]


def stratified_split(labels: Tensor, shares: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Disjoint random sets of positions holding `shares[k]` of every class, rounded, then one with all the rest.

    A class too small for its share stays whole in the rest, which is why training takes the rest.

    >>> labels = torch.tensor([0] * 10 + [1])
    >>> test, train = stratified_split(labels, [0.2], torch.Generator())
    >>> labels[test].tolist(), len(train)
    ([0, 0], 9)
    """
    parts: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    for positions in shuffled_by_class(labels, generator):
        sizes = [round(share * len(positions)) for share in shares]
        for part, chunk in zip(parts, positions.split([*sizes, len(positions) - sum(sizes)]), strict=True):
            part.append(chunk)
    return [torch.cat(part).sort().values for part in parts]
