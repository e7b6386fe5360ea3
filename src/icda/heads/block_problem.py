"""The loss of a head over rows in blocks: all that is asked of a block is a sum.

The loss is a sum over samples, given the moments of the logits within the classes. Those are W mu_j and W Sigma_j W^T: with
class means and covariances gathered once, one pass over the blocks gives value and gradient. What comes back from a block
has the size of the head, not of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icda.functional.confusion import count_confusions
from icda.functional.strength import direct_strength
from icda.functional.tables import LogitMoments
from icda.heads.blocks import NOTHING, BlockRows, RowChunk
from icda.heads.objective import Slope, adjustment_table, fold_slope, from_rows, label_slope_, shifted
from icda.heads.problem import AUGMENTED, LossSettings, Problem, log_shares, reweigh

if TYPE_CHECKING:
    from icda.heads.solver import LinearHead
    from icda.heads.spreading import AttributePrior

Weigh = Callable[[RowChunk], Tensor]  # how much each row of a chunk counts (n,)
Masses = Callable[[RowChunk], Tensor]  # the same in the losses of K heads (K, n), which all rows together make one


def masses_of_one(weigh: Weigh | None, total: float, chunk: RowChunk) -> Tensor:
    if weigh is None:
        return chunk.features.new_full((1, len(chunk.targets)), 1 / total)
    return weigh(chunk)[None] / total


def class_masses(chunk: RowChunk, weigh: Weigh, num_classes: int) -> Tensor:
    return torch.bincount(chunk.targets, weigh(chunk).double(), minlength=num_classes)


@dataclass(frozen=True)
class BlockProblem:
    """What `Problem` is in memory, for rows in blocks."""

    features: BlockRows
    decay: float
    weigh: Weigh | None = None  # None: every row counts the same
    prior: AttributePrior | None = None

    @property
    def num_classes(self) -> int:
        return self.features.num_classes

    @property
    def products(self) -> int:
        """How many numbers one pass over a block multiplies."""
        return max(map(len, self.features.places)) * self.features.shape[1] * self.num_classes

    def objective(self, settings: LossSettings) -> BlockObjective:
        rows = self.features
        counts, constant = torch.from_numpy(rows.counts), torch.zeros(self.num_classes, dtype=torch.float64)
        if self.weigh is not None:
            counts = rows.total(class_masses, self.weigh, self.num_classes)
        if settings.name in ("la", "icda") and self.prior is None:
            constant = log_shares(counts)
        masses = partial(masses_of_one, self.weigh, float(counts.sum()))
        return BlockObjective(rows, Question(settings, masses, constant.to(rows.dtype)[None], prior=self.prior))

    def part(self, chunk: RowChunk) -> Problem:
        """Some of the rows, or all, as a problem in memory, with what each brings along."""
        problem = replace(Problem.plain(chunk.features, chunk.targets, self.num_classes, 1.0), decay=self.decay)
        if self.weigh is not None:
            problem = reweigh(problem, self.weigh(chunk))
        return problem if self.prior is None else replace(problem, log_prior=self.prior.added(chunk))

    def confusions(self, head: LinearHead) -> Tensor:
        return self.features.total(count_mistakes, head.weight, head.bias)

    def sampled_rows(self) -> Tensor:
        return self.features.reading.scaled(self.features.sampled)


def count_mistakes(chunk: RowChunk, weight: Tensor, bias: Tensor) -> Tensor:
    """How often a head takes each class (row) for each class (column), (C, C)."""
    return count_confusions(torch.addmm(bias, chunk.features, weight.T).argmax(1), chunk.targets, len(bias))


@dataclass(frozen=True)
class Question:
    """What is asked of every block in one pass: value and gradient at some heads."""

    settings: LossSettings
    masses: Masses
    constant: Tensor  # (K, C)
    weight: Tensor = NOTHING
    bias: Tensor = NOTHING
    table: Tensor | None = None  # of `icda.functional.tables`, for losses that have one
    angles: Tensor | None = None  # the weight whose angles are ICDA's strengths
    prior: AttributePrior | None = None  # what each row adds to its logits by itself


def answer(chunk: RowChunk, question: Question) -> Slope:
    """The rows' part of value and gradient."""
    added = None if question.prior is None else question.prior.added(chunk)
    if question.table is not None:
        return _augmented_answer(chunk, question, question.table, added)
    shift = shifted(question.bias, question.constant)
    return fold_slope(chunk.features, chunk.targets, question.masses(chunk), question.weight, shift, added)


def _augmented_answer(chunk: RowChunk, question: Question, table: Tensor, added: Tensor | None) -> Slope:
    """The losses of one head, label after label; `icda.heads.objective.AugmentedObjective` is the same in memory."""
    mass, order = question.masses(chunk)[0], torch.argsort(chunk.targets, stable=True)
    features, targets, mass = chunk.features[order], chunk.targets[order], mass[order]
    logits = torch.addmm((question.bias + question.constant[0])[:, None], question.weight, features.T)
    if added is not None:
        logits += added[order].T
    coefficients = margin = None
    if question.angles is not None:
        strength = direct_strength(features, targets, question.angles)
        coefficients = (strength.per_class / (len(table) - 1)).scatter_(1, targets[:, None], 1).to(features).T
        margin = question.settings.beta * strength.per_sample.to(features)
    value, to_table, start = 0.0, torch.zeros_like(table), 0
    for label, block in enumerate(logits.split(torch.bincount(targets, minlength=len(table)).tolist(), 1)):
        span, start = slice(start, start + block.shape[1]), start + block.shape[1]
        if span.start == span.stop:
            continue
        part = None if coefficients is None else coefficients[:, span]
        if part is None:
            block += table[label][:, None]
        value += label_slope_(block, label, mass[span], part, None if margin is None else margin[span], table[label])
        to_table[label] += block.sum(1) if part is None else part @ block.T
    return Slope(value, logits @ features, logits.sum(1), to_table)


class BlockObjective:
    """The loss over all blocks as a function of weight and bias: one pass for value and gradient."""

    def __init__(self, rows: BlockRows, question: Question) -> None:
        self.rows, self.question = rows, question
        self.relations: Tensor | None = None  # RISDA's

    def follow(self, head: LinearHead) -> None:
        """Read ICDA's strengths off a head from now on."""
        self.question = replace(self.question, angles=head.weight)

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        if self.question.settings.name not in AUGMENTED:
            return self._ask(weight, bias, None)
        whole = from_rows(torch.cat([weight, bias[:, None]], 1), self.rows.num_classes)[0]
        leaf = whole[:, :-1].clone().requires_grad_()
        with torch.enable_grad():
            table = adjustment_table(self.question.settings, self._moments(leaf), self.relations)
        found = self._ask(leaf.detach(), whole[:, -1], table.detach())
        to_weight = found.to_weight + torch.autograd.grad(table, leaf, found.to_table)[0]
        return Slope(found.value, to_weight, found.to_bias).in_rows()

    def _moments(self, weight: Tensor) -> LogitMoments:
        """Of the logits, from those of the scaled features."""
        statistics, scaling = self.rows.statistics, self.rows.reading.scaling
        assert statistics is not None
        assert scaling is not None
        mean = scaling.apply(statistics.mean).to(weight.dtype)
        covariance = (statistics.covariance / (scaling.scale[:, None] * scaling.scale)).to(weight.dtype)
        return LogitMoments(mean @ weight.T, weight @ (covariance @ weight.T))

    def _ask(self, weight: Tensor, bias: Tensor, table: Tensor | None) -> Slope:
        question = replace(self.question, weight=weight, bias=bias.contiguous(), table=table)
        return self.rows.total(answer, question)
