"""Long-tailed subsets: class sizes that fall off geometrically."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from icda.data.splits import shuffled_by_class, take_per_class
from icda.errors import InputError


class LongTail(NamedTuple):
    """Positions of a long-tailed training set and, under the meta protocol, of the balanced metadata beside it."""

    train: Tensor
    metadata: Tensor | None


def long_tail_counts(largest: int, num_classes: int, ratio: float) -> list[int]:
    """Class sizes from `largest` down to `largest / ratio`: n_c = int(largest * ratio^(-c / (C - 1)))."""
    if num_classes < 2 or ratio < 1:
        raise InputError(f"a long tail needs two classes and a ratio of 1 or more, got {num_classes} and {ratio}.")
    counts = [int(largest * ratio ** (-c / (num_classes - 1))) for c in range(num_classes)]
    if counts[-1] < 1:
        raise InputError(f"at {ratio}:1 a largest class of {largest} leaves none for the last: lower the ratio.")
    return counts


def long_tail(
    labels: Tensor, ratio: float, generator: torch.Generator, *, metadata_per_class: int = 0, largest: int | None = None
) -> LongTail:
    """Choose a long-tailed subset of `labels`; class 0 stays largest, as in the CIFAR-LT of the literature.

    With `metadata_per_class` (ten in the meta protocol of MetaSAug and Meta-Weight-Net) that many of each class are set
    aside first and the tail is cut from what remains. `largest` defaults to the size of the smallest class.
    """
    metadata = None
    pool = torch.arange(len(labels))
    if metadata_per_class:
        metadata, pool = take_per_class(labels, [metadata_per_class], generator)
    available = torch.bincount(labels[pool])
    counts = long_tail_counts(int(available.min()) if largest is None else largest, len(available), ratio)
    return LongTail(pool[keep_counts(labels[pool], counts, generator)], metadata)


def keep_counts(labels: Tensor, counts: Sequence[int], generator: torch.Generator) -> Tensor:
    """Random positions with `counts[c]` samples of class c, in ascending order."""
    kept = []
    for label, positions in enumerate(shuffled_by_class(labels, generator)):
        if len(positions) < counts[label]:
            raise InputError(f"class {label} has {len(positions)} samples, {counts[label]} are needed.")
        kept.append(positions[: counts[label]])
    return torch.cat(kept).sort().values
