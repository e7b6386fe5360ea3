"""Heads of several folds fitted to blocks side by side: a pass over the rows serves all of them.

What a row counts in a fold's loss follows from its place, its label and, for robust heads, from what earlier heads say of
it. So a block works it out again in each pass, and no row's number ever travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.engines import Engine
from icda.linear.blocks import Answer, Scaling, scaled_chunks
from icda.linear.dealing import Place, deal_folds
from icda.linear.descent import Metric, descend
from icda.linear.evaluation import Slope
from icda.linear.objective import LossSettings
from icda.linear.solver import memory_of
from icda.linear.stacked import MOST_ROWS, class_slope_, two_class_slope_

CONTRAST_SHARE = 0.5  # of the robust margin that is taken off the biased one, as in `contrast_groups`


class FoldHeads(NamedTuple):
    """Weights (K, C, A) and biases (K, C) of the heads of K folds, for scaled features."""

    weight: Tensor
    bias: Tensor

    def held_out(self, features: Tensor, folds: Tensor) -> Tensor:
        """Logits (n, C) of each row by the head that was fitted without its fold."""
        number, classes, width = self.weight.shape
        if number * classes <= MOST_ROWS:  # one product of all heads is faster than to gather the rows of each fold
            every = torch.addmm(self.bias.flatten(), features, self.weight.view(-1, width).T)
            return every.view(len(features), number, classes)[torch.arange(len(features)), folds]
        logits = features.new_empty(len(features), self.bias.shape[1])
        for fold in folds.unique().tolist():
            rows = folds == fold
            logits[rows] = torch.addmm(self.bias[fold], features[rows], self.weight[fold].T)
        return logits


@dataclass(frozen=True)
class Contrast:
    """Where biased and robust heads disagree: the tie of a row, with deviations that make margins comparable."""

    biased: FoldHeads
    deviation: float = 1.0
    robust: FoldHeads | None = None
    robust_deviation: float = 1.0

    def ties(self, features: Tensor, targets: Tensor, folds: Tensor, biased: Tensor | None = None) -> Tensor:
        """The tie (n,) of each row; `biased` (n, C) are the logits of the biased heads, where they are known."""
        logits = self.biased.held_out(features, folds) if biased is None else biased
        tie = wrong_margin(logits, targets)
        if self.robust is None:
            return tie
        robust = wrong_margin(self.robust.held_out(features, folds), targets)
        return tie / self.deviation - CONTRAST_SHARE * robust / self.robust_deviation


@dataclass(frozen=True)
class Dealing:
    """All that says which fold a row is in and how its features are scaled."""

    classes: np.ndarray
    scaling: Scaling
    folds: int
    seed: int
    dtype: torch.dtype

    def chunks(self, place: Place) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Scaled features, classes and folds of a block's rows, a chunk at a time."""
        before = place.before
        for features, targets in scaled_chunks(place.block, self.classes, self.scaling, self.dtype):
            yield features, targets, self.folds_of(targets.numpy(), before)
            before = before + np.bincount(targets.numpy(), minlength=len(before))

    def folds_of(self, codes: np.ndarray, before: np.ndarray) -> Tensor:
        return torch.from_numpy(deal_folds(codes, before, self.folds, self.seed))


@dataclass(frozen=True)
class FoldQuestion:
    """What is asked of every block in one pass: value and gradients at the heads of all folds."""

    dealing: Dealing
    masses: Tensor  # (K, M), what a row of a cell counts in the loss of a fold that it is not in
    contrast: Contrast | None  # None: the cells are the classes; else twice as many, with those that are hurt
    weight: Tensor
    shift: Tensor


def wrong_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """How far the best wrong class is ahead of the target.

    >>> wrong_margin(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([1])).tolist()
    [2.0]
    """
    own = logits.gather(1, targets[:, None])[:, 0]
    return logits.scatter(1, targets[:, None], float("-inf")).amax(1) - own


def count_cells(place: Place, dealing: Dealing, contrast: Contrast | None) -> Tensor:
    """How many rows of a block are in each fold and cell: (K, C) by class, (K, 2 C) with a contrast."""
    number = len(dealing.classes) * (1 if contrast is None else 2)
    counts = torch.zeros(dealing.folds, number, dtype=torch.long)
    if contrast is None:  # labels do
        codes = np.searchsorted(dealing.classes, place.block.labels())
        pairs = dealing.folds_of(codes, place.before) * number + torch.from_numpy(codes)
        return counts + torch.bincount(pairs, minlength=counts.numel()).view_as(counts)
    for features, targets, folds in dealing.chunks(place):
        cells = _cells(contrast, features, targets, folds)
        counts += torch.bincount(folds * number + cells, minlength=counts.numel()).view_as(counts)
    return counts


def balanced_masses(counts: Tensor) -> Tensor:
    """What a row counts (K, M) in each fold's loss, every cell of all rows weighing the same; from counts (K, M).

    >>> balanced_masses(torch.tensor([[1, 1], [1, 3]])).tolist()
    [[0.4, 0.2], [0.6666666666666666, 0.3333333333333333]]
    """
    cells = counts.sum(0).double()
    weights = torch.where(cells > 0, 1 / cells, 0.0)
    inside = (cells - counts) @ weights
    return weights / inside[:, None]


def answer_folds(place: Place, question: FoldQuestion) -> Answer:
    """A block's part of the sum of the folds' losses and of its gradients."""
    classes = len(question.dealing.classes)
    value, to_weight, to_bias = 0.0, torch.zeros_like(question.weight), torch.zeros_like(question.shift)
    masses = question.masses.to(question.weight)
    for features, targets, folds in question.dealing.chunks(place):
        cells = _cells(question.contrast, features, targets, folds)
        mass = masses[:, cells] * (folds != torch.arange(len(masses))[:, None])
        outputs = torch.addmm(question.shift[:, None], question.weight, features.T)
        slope_ = two_class_slope_ if classes == 2 else class_slope_
        value += slope_(outputs, targets, mass)
        to_weight.addmm_(outputs, features)
        to_bias += outputs.sum(1)
    return Answer(value, to_weight, to_bias)


def fit_fold_heads(
    places: Sequence[Place],
    engine: Engine,
    question: FoldQuestion,
    decay: float,
    max_iter: int,
    tol: float,
    metric: Metric | None,
    count_pass: Callable[[], None],
    start: FoldHeads | None = None,
) -> FoldHeads:
    """Heads of cross entropy for all folds; `start` are heads of the same folds, which have seen the same rows."""
    folds, classes = question.dealing.folds, len(question.dealing.classes)
    rows = 1 if classes == 2 else classes  # two classes have opposite rows: one does
    begin = torch.zeros(folds * rows, len(question.dealing.scaling.mean) + 1, dtype=question.dealing.dtype)
    if start is not None:
        whole = torch.cat([start.weight, start.bias[:, :, None]], 2)
        begin = (whole[:, 1:] - whole[:, :1] if classes == 2 else whole).flatten(0, 1)

    def objective(weight: Tensor, bias: Tensor) -> Slope:
        count_pass()
        asked = replace(question, weight=weight, shift=bias.contiguous())
        found = reduce(Answer.plus, engine.each(answer_folds, places, asked))
        return Slope(found.value, found.to_weight, found.to_bias)

    memory = memory_of(LossSettings("ce"))
    shrink = 0.5 * decay if classes == 2 else decay
    found = descend(objective, begin, shrink, max_iter, tol, memory, None if classes == 2 else metric)
    parts = found.parameters.view(folds, rows, -1)
    if classes == 2:
        parts = torch.cat([-0.5 * parts, 0.5 * parts], 1)
    return FoldHeads(parts[:, :, :-1].contiguous(), parts[:, :, -1].contiguous())


def _cells(contrast: Contrast | None, features: Tensor, targets: Tensor, folds: Tensor) -> Tensor:
    if contrast is None:
        return targets
    return 2 * targets + (contrast.ties(features, targets, folds) > 0).long()
