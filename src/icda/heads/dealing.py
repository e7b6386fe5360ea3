"""Draws that depend on a row's place alone, so that they are the same however rows are cut into blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CHUNK = 2**20  # numbers scrambled at once


@dataclass(frozen=True)
class Place:
    """A block, the number of its first row, and how many rows of each class (C,) come before it."""

    block: Any  # an `icda.heads.blocks.Block`
    start: int
    before: np.ndarray

    def __len__(self) -> int:
        return len(self.block)


def place_blocks(
    blocks: Sequence[Any], parts: Sequence[tuple[np.ndarray, np.ndarray]], classes: np.ndarray
) -> Iterator[Place]:
    """The blocks with their places, from the labels and counts of each (`count_labels`)."""
    start, before = 0, np.zeros(len(classes), dtype=np.int64)
    for block, (labels, counts) in zip(blocks, parts, strict=True):
        yield Place(block, start, before)
        before = before.copy()
        before[np.searchsorted(classes, labels)] += counts
        start += len(block)


def scrambled(numbers: np.ndarray, seed: int) -> np.ndarray:
    """Whole numbers to whole numbers of 64 bits that look drawn at random (the finaliser of SplitMix64).

    >>> len(np.unique(scrambled(np.arange(1000), seed=0) % 1000)) > 600
    True
    """
    key = (0x9E3779B97F4A7C15 * (2 * (seed % 2**63) + 1)) % 2**64
    mixed = numbers.astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def draw_rows(total: int, count: int, seed: int) -> np.ndarray:
    """Numbers of `count` rows out of `total`, sorted; all of them where there are not more.

    >>> draw_rows(5, 8, seed=0).tolist(), len(draw_rows(100, 8, seed=0))
    ([0, 1, 2, 3, 4], 8)
    """
    rows = np.empty(0, dtype=np.int64)
    for start in range(0, total, CHUNK):
        rows = np.concatenate([rows, np.arange(start, min(start + CHUNK, total))])
        if len(rows) > count:
            rows = rows[np.argpartition(scrambled(rows, seed), count)[:count]]
    return np.sort(rows)


def ranks_within(codes: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How many rows of its own class come before each row, with those of earlier blocks.

    >>> ranks_within(np.array([0, 1, 0, 0]), np.array([10, 0])).tolist()
    [10, 0, 11, 12]
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(before))
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks + before[codes]


def deal_folds(
    codes: np.ndarray, before: np.ndarray, folds: int, seed: int, chosen: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """A fold for each row `chosen`: of any `folds` rows of a class that follow each other, each goes to another fold.

    So every class is spread evenly, and a block needs to know no more than how many rows of each class come before it.

    >>> sorted(deal_folds(np.array([1, 1, 1, 1]), np.array([0, 4]), folds=4, seed=0).tolist())
    [0, 1, 2, 3]
    """
    ranks, codes = ranks_within(codes, before)[chosen], codes[chosen]
    # The group is what is scrambled, with its class: its rows are then ordered by numbers of their own.
    groups = scrambled(ranks // folds, seed) + scrambled(codes, seed + 1)
    drawn = scrambled(groups[:, None] + np.arange(folds, dtype=np.uint64), seed + 2)
    own = drawn[np.arange(len(codes)), ranks % folds]
    return (drawn < own[:, None]).sum(1)
