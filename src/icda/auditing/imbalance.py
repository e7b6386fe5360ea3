"""How unevenly the samples are spread over the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEW = 20  # training samples below which a class counts as few-shot, as in icda.metrics
MANY = 100


@dataclass(frozen=True)
class Imbalance:
    """`ratio` is the largest class over the smallest; `entropy` that of the class shares over its largest value."""

    counts: list[int]
    ratio: float
    entropy: float
    few: list[str]
    medium: int
    many: int


def measure_imbalance(counts: np.ndarray, names: list[str]) -> Imbalance:
    """The long-tail section.

    >>> measure_imbalance(np.array([300, 30, 3]), ["cat", "dog", "emu"]).few
    ['emu']
    >>> round(measure_imbalance(np.array([10, 10]), ["a", "b"]).entropy, 6)
    1.0
    """
    shares = counts / counts.sum()
    entropy = float(-(shares * np.log(shares)).sum() / np.log(len(counts)))
    few = [names[k] for k in np.argsort(counts, kind="stable") if counts[k] < FEW]
    many = int((counts > MANY).sum())
    return Imbalance(
        [int(count) for count in counts],
        float(counts.max() / counts.min()),
        entropy,
        few,
        len(counts) - len(few) - many,
        many,
    )
