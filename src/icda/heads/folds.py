"""Heads of several folds over rows in blocks: what heads that have not seen a row say of it, and the groups it is in.

What a row counts in a fold's loss follows from its place, its label and what earlier heads say of it. So a block works it
out again in each pass, and no row's number ever travels.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from icda.functional.prior import joint_counts
from icda.heads.block_problem import BlockObjective, BlockProblem, Question
from icda.heads.blocks import BlockRows, RowChunk
from icda.heads.cross_fit import belief
from icda.heads.descent import METRIC_SHARE, Coordinates
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import MOST_ROWS, LinearHead, minimise
from icda.heads.threads import threads_for

CONTRAST_SHARE = 0.5  # of the robust margin that is taken off the biased one
ROBUST_DECAY = 10.0  # times the decay, for heads that have few rows in the rarest group


class FoldHeads(NamedTuple):
    """Weights (K, C, A) and biases (K, C) of the heads of K folds, for scaled features."""

    weight: Tensor
    bias: Tensor

    def held_out(self, chunk: RowChunk) -> Tensor:
        """Logits (n, C) of each row by the head that was fitted without its fold."""
        number, classes, width = self.weight.shape
        features, folds = chunk.features, chunk.folds
        if number * classes <= MOST_ROWS:  # one product of all heads is faster than to gather the rows of each fold
            every = torch.addmm(self.bias.flatten(), features, self.weight.view(-1, width).T)
            return every.view(len(features), number, classes)[torch.arange(len(features)), folds]
        logits = features.new_empty(len(features), classes)
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

    def ties(self, chunk: RowChunk) -> Tensor:
        """The tie (n,) of each row."""
        tie = wrong_margin(self.biased.held_out(chunk), chunk.targets)
        if self.robust is None:
            return tie
        robust = wrong_margin(self.robust.held_out(chunk), chunk.targets)
        return tie / self.deviation - CONTRAST_SHARE * robust / self.robust_deviation

    def judged(self, chunk: RowChunk) -> tuple[Tensor, Tensor]:
        """Logits (n, C) of the biased heads, and ties (n,)."""
        return self.biased.held_out(chunk), self.ties(chunk)


class HeldTies(NamedTuple):
    """What heads say of rows in memory that they have not seen: logits (N, C) and ties (N,), as a `Contrast` says them."""

    logits: Tensor
    ties: Tensor

    def judged(self, chunk: RowChunk) -> tuple[Tensor, Tensor]:
        return self.logits[chunk.rows], self.ties[chunk.rows]


def wrong_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """How far the best wrong class is ahead of the target.

    >>> wrong_margin(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([1])).tolist()
    [2.0]
    """
    own = logits.gather(1, targets[:, None])[:, 0]
    return logits.scatter(1, targets[:, None], float("-inf")).amax(1) - own


def trust(heads: FoldHeads, chunk: RowChunk) -> Tensor:
    """How far heads that have not seen a row believe its label (n,)."""
    return belief(torch.softmax(heads.held_out(chunk), 1), chunk.targets)


@dataclass(frozen=True)
class Cells:
    """Rows that count alike: those of a class or, with a contrast, twice as many, with those that the shortcut hurts apart.

    With `trusted` heads a row counts by how far they believe its label.
    """

    num_classes: int
    contrast: Contrast | None = None
    trusted: FoldHeads | None = None

    def of(self, chunk: RowChunk) -> Tensor:
        if self.contrast is None:
            return chunk.targets
        return 2 * chunk.targets + (self.contrast.ties(chunk) > 0).long()

    def counts(self, chunk: RowChunk, folds: int) -> Tensor:
        """How many rows, or how much trust, are in each fold and cell: (K, M)."""
        number = self.num_classes * (1 if self.contrast is None else 2)
        weights = None if self.trusted is None else trust(self.trusted, chunk)
        return joint_counts(chunk.folds, self.of(chunk), folds, number, weights)

    def masses(self, table: Tensor, chunk: RowChunk) -> Tensor:
        """What rows count in the losses of all folds but their own, by the `table` (K, M) of cells."""
        outside = chunk.folds != torch.arange(len(table))[:, None]
        mass = table.to(chunk.features)[:, self.of(chunk)] * outside
        return mass if self.trusted is None else mass * trust(self.trusted, chunk)


def fit_fold_heads(
    rows: BlockRows,
    decay: float,
    *,
    contrast: Contrast | None = None,
    trusted: FoldHeads | None = None,
    balanced: bool = True,
    start: FoldHeads | None = None,
    max_iter: int = 100,
    tol: float = 1e-3,
) -> FoldHeads:
    """A head for each fold, fitted to all rows but the fold's own.

    `balanced` gives every cell the same mass, by cross entropy; else each row counts as it is, or by trust, and logit
    adjustment takes the place of the balance. `start` are heads of the same folds, which have seen the same rows.
    """
    classes, folds = rows.num_classes, rows.reading.folds
    kinds = Cells(classes, contrast, trusted)
    counts: Tensor = rows.total(kinds.counts, folds)
    inside = counts.sum(0) - counts  # (K, M): what the head of each fold sees
    cells = torch.where(counts.sum(0) > 0, 1 / counts.sum(0), 0.0) if balanced else torch.ones_like(counts[0])
    table = cells / (inside @ cells)[:, None]
    constant = torch.zeros(folds, classes, dtype=torch.float64) if balanced else inside.log()
    question = Question(LossSettings("ce"), partial(kinds.masses, table), constant.to(rows.dtype))
    starts = [LinearHead.zeros(classes, rows.shape[1], rows.dtype)] * folds
    if start is not None:
        starts = [LinearHead(*pair) for pair in zip(*start, strict=True)]
    metric = None
    if classes > 2 and rows.shape[1] ** 2 <= METRIC_SHARE * rows.shape[0] * classes:
        metric = Coordinates.of(rows.reading.scaled(rows.sampled), decay, 1 / classes)
    problem, objective = BlockProblem(rows, decay), BlockObjective(rows, question)
    with threads_for(folds * problem.products):
        heads = minimise(problem, objective, question.settings, starts, max_iter, tol, metric)
    return FoldHeads(torch.stack([head.weight for head in heads]), torch.stack([head.bias for head in heads]))


def trusted_heads(rows: BlockRows, decay: float) -> FoldHeads:
    """Heads that say how far a row's label is believed (`trust`), fitted with such trust before."""
    first = fit_fold_heads(rows, decay, balanced=False)
    return fit_fold_heads(rows, decay, trusted=first, balanced=False)


def sum_margins(rows: BlockRows, heads: FoldHeads) -> tuple[float, Tensor]:
    """The deviation of the margins, and sums (C,) of the probabilities of rows' own classes."""
    sums = rows.total(margin_sums, heads)
    variance = (sums[1] - sums[0].square() / rows.shape[0]) / max(rows.shape[0] - 1, 1)
    return max(float(variance.clamp(min=0).sqrt()), 1e-12), sums[2:]


def margin_sums(chunk: RowChunk, heads: FoldHeads) -> Tensor:
    """Sums of the margins of some rows, of their squares, and of the probabilities of each class's own rows: (2 + C,)."""
    logits = heads.held_out(chunk).double()
    margins = wrong_margin(logits, chunk.targets)
    own = torch.softmax(logits, 1).gather(1, chunk.targets[:, None])[:, 0]
    confidence = torch.bincount(chunk.targets, own, minlength=logits.shape[1])
    return torch.cat([torch.stack([margins.sum(), margins.square().sum()]), confidence])


def find_contrast(
    rows: BlockRows, decay: float, rounds: int = 4, max_iter: int = 100, tol: float = 1e-3
) -> tuple[Contrast, Tensor]:
    """Biased and robust heads, and the sum of the probabilities (C,) that the biased ones give to the labels.

    Ours, not the paper's. The logit of a class-balanced head that has not seen a sample depends on the class and on the
    shortcut at once, that of a head which balances the groups guessed so far more on the class. What is left of the first
    after part of the second is taken away sorts each class into those that the shortcut helps and those it hurts. Without
    rounds the tie is the biased heads' margin: what they get wrong is a group.
    """
    fit = partial(fit_fold_heads, rows, max_iter=max_iter, tol=tol)
    biased = fit(decay)
    deviation, confidence = sum_margins(rows, biased)
    found = Contrast(biased, deviation)
    for _ in range(rounds):
        robust = fit(ROBUST_DECAY * decay, contrast=found, start=found.robust)
        found = Contrast(biased, deviation, robust, sum_margins(rows, robust)[0])
    return found, confidence


def find_ties(
    rows: BlockRows, decay: float, rounds: int = 4, repeats: int = 1, max_iter: int = 100, tol: float = 1e-3
) -> HeldTies:
    """Of rows in memory: means over `repeats`, with other folds each time."""
    logits, ties = [], []
    for repeat in range(repeats):
        dealt = replace(rows, reading=replace(rows.reading, seed=rows.reading.seed + repeat))
        contrast, _ = find_contrast(dealt, decay, rounds, max_iter, tol)
        logits.append(dealt.gathered(contrast.biased.held_out))
        ties.append(dealt.gathered(contrast.ties))
    return HeldTies(torch.stack(logits).mean(0), torch.stack(ties).mean(0))


@dataclass(frozen=True)
class PseudoGroups:
    """`attributes` (N,): the class the shortcut predicts, a sample's own or another; `tie` (N,): the score behind it.

    The larger the tie, the more the shortcut points to `rivals` (N,), the likeliest wrong class, and not to the label.
    """

    tie: Tensor
    targets: Tensor
    rivals: Tensor

    @property
    def hurt(self) -> Tensor:
        """Whether the shortcut contradicts a sample's label."""
        return self.tie > 0

    @property
    def attributes(self) -> Tensor:
        return torch.where(self.hurt, self.rivals, self.targets)


def contrast_groups(problem: Problem, *, rounds: int = 4, repeats: int = 3, seed: int = 0) -> PseudoGroups:
    """Guess groups in `rounds`; without any, the samples that a class-balanced head gets wrong are a group.

    Every sample counts the same in the guess, whatever its weight.
    """
    targets = problem.targets
    rows = BlockRows.of_memory(problem.features, targets, problem.num_classes, seed=seed)
    logits, ties = find_ties(rows, problem.decay, rounds, repeats)
    rivals = logits.scatter(1, targets[:, None], float("-inf")).argmax(1)
    return PseudoGroups(ties, targets, rivals)
