"""Figures over folds that test every sample once: groups are pooled, and a small one has its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

WORST = "worst_group_accuracy"
NORMAL = 1.96  # two-sided, 95 %


def pooled(lines: Sequence[Mapping[str, str]], metric: str) -> float:
    """A figure of ledger rows, one for each fold: the worst group of all samples together, of other metrics the mean.

    >>> pooled([{"groups": "1/2 9/9"}, {"groups": "1/2 5/9"}], WORST)
    0.5
    """
    if metric != WORST or len(lines) == 1:
        return statistics.mean(float(line[metric]) for line in lines)
    right, total = worst_group(lines)
    return right / total


def worst_group(lines: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    """Right and all samples of the group that is worst over the folds together."""
    folds = [[tuple(map(int, group.split("/"))) for group in line["groups"].split()] for line in lines]
    groups = [
        (sum(right for right, _ in group), sum(total for _, total in group)) for group in zip(*folds, strict=True)
    ]
    return min((group for group in groups if group[1]), key=lambda group: group[0] / group[1])


def wilson(share: float, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of `total` samples (Wilson, 1927).

    >>> [round(end, 3) for end in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    square = NORMAL**2 / total
    middle = (share + square / 2) / (1 + square)
    half = NORMAL / (1 + square) * math.sqrt(share * (1 - share) / total + square / (4 * total))
    return max(0.0, middle - half), min(1.0, middle + half)
