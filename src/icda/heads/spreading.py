"""Attributes of rows: given, read off by a head, or known for some rows and read off all others.

A person says of two dozen samples what they show ("photo", "sketch"), or metadata name the camera of some. A linear head
learns it from those rows, off two things: the features, and what heads that have not seen a row say of its class. The
second is what makes few answers suffice: where there is a shortcut, those heads follow it (mathematics 9.6).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from icda.functional.prior import conditional_log_prior, joint_counts
from icda.heads.blocks import BlockRows, RowChunk
from icda.heads.cross_fit import balanced_share, belief, held_out_logits, outside_folds
from icda.heads.folds import FoldHeads, fit_fold_heads
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.rows import Rows
from icda.heads.solver import LinearHead, fit_head

CLASS_SHARE = 0.3  # length of the class logits beside that of the features
FOLDS = 8  # of the known rows, for the reader's own judgement
SLIP = 0.8  # p(answer) / p(best) below which a reader that was fitted without an answer contradicts it
GOOD = 0.8  # share of answers that a reader must agree with before those it contradicts count as slips
Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class ReadingQuality:
    """The share of the known rows that readers fitted without them get right, every value counting alike.

    Answers that were asked for are harder to read than most rows, so this is a cautious figure. A prior over the reading
    is not shrunk by it: where little can be read, the counts themselves are near those of the classes (mathematics 9.6).
    """

    accuracy: float
    low: float  # 95 % interval
    high: float
    rows: int

    def __str__(self) -> str:
        within = f"{self.low:.0%} to {self.high:.0%}"
        return f"{self.accuracy:.0%} right on {self.rows} known samples it was not fitted to ({within})"


@dataclass(frozen=True)
class AttributeReader:
    """A linear head (K, A) that reads an attribute of K values off scaled features; `known` rows have theirs already."""

    weight: Tensor
    bias: Tensor
    known: Tensor  # (M,) row numbers, ascending
    values: Tensor  # (M,)

    @property
    def number(self) -> int:
        return len(self.bias)

    def guess(self, chunk: RowChunk) -> Tensor:
        """The value of each row (n,), as if none were known."""
        bias, weight = self.bias.to(chunk.features), self.weight.T.to(chunk.features)
        return torch.addmm(bias, chunk.features, weight).argmax(1)

    def read(self, chunk: RowChunk) -> Tensor:
        places = torch.searchsorted(self.known, chunk.rows).clamp(max=len(self.known) - 1)
        return torch.where(self.known[places] == chunk.rows, self.values[places], self.guess(chunk))


@dataclass(frozen=True)
class GivenGroups:
    """The attribute is the group that was given with each row."""

    number: int

    def read(self, chunk: RowChunk) -> Tensor:
        assert chunk.groups is not None
        return chunk.groups


@dataclass(frozen=True)
class Noted:
    """What is known of all rows in memory: the attribute, or how much each counts (N,)."""

    values: Tensor
    number: int = 0  # of values of the attribute

    def read(self, chunk: RowChunk) -> Tensor:
        return self.values[chunk.rows]


AnyReader = AttributeReader | GivenGroups | Noted


def count_attributes(chunk: RowChunk, reader: AnyReader, num_classes: int, weights: Tensor | None = None) -> Tensor:
    """How many rows have each value of the attribute and each class, (K, C); `weights` are those of all rows in memory."""
    own = None if weights is None else weights[chunk.rows]
    return joint_counts(reader.read(chunk), chunk.targets, reader.number, num_classes, own)


def reading_head(features: Rows, targets: Tensor, attributes: Tensor, num_classes: int, decay: float) -> LinearHead:
    """A head that reads an attribute (N,) of 0 .. K-1, every pair of class and attribute counting the same.

    Balanced so that it cannot answer with the class: what is left is the attribute.
    """
    number = int(attributes.max()) + 1
    weights = rebalance(Problem.plain(features, targets, num_classes, decay), attributes).weights
    counts = torch.bincount(attributes, minlength=number).double()
    reader = Problem.plain(features, attributes, number, decay)
    return fit_head(replace(reader, weights=weights, class_counts=counts), LossSettings("ce"))


class AttributePrior(NamedTuple):
    """log P(y | attribute) (K, C) as far as it is trusted, the prior of the classes for the rest; and how to read it."""

    reader: AnyReader
    table: Tensor

    @classmethod
    def of(cls, reader: AnyReader, rows: BlockRows, strength: float) -> Self:
        """Counted in one pass over the rows."""
        counts = rows.total(count_attributes, reader, rows.num_classes, rows.weights)
        smoothing = 0.5 if rows.weights is None else 0.5 * rows.unit * float(rows.weights.mean())
        return cls(reader, conditional_log_prior(counts, smoothing, strength).to(rows.dtype))

    def added(self, chunk: RowChunk) -> Tensor:
        """What training adds to the logits of each row (n, C)."""
        return self.table[self.reader.read(chunk)]


@dataclass(frozen=True)
class ClassLogits:
    """What heads that have not seen a row say of its class, as features beside the row's own."""

    heads: FoldHeads
    unit: float  # what logits are multiplied by

    @classmethod
    def of(cls, rows: BlockRows, decay: float) -> Self:
        heads = fit_fold_heads(rows, decay, balanced=False)
        squares = max(float(rows.total(sum_squares, heads)), 1e-12)
        return cls(heads, CLASS_SHARE * (rows.shape[1] * rows.shape[0] * rows.num_classes / squares) ** 0.5)

    def beside(self, chunk: RowChunk) -> Tensor:
        """Features and class logits (n, A + C)."""
        logits = self.heads.held_out(chunk)
        return torch.cat([chunk.features, self.unit * (logits - logits.mean(1, keepdim=True))], 1)


@dataclass(frozen=True)
class SpreadReader(AttributeReader):
    """Reads an attribute of V values off features and class logits, with a head (V, A + C)."""

    shown: ClassLogits
    quality: ReadingQuality
    allowed: Tensor | None = None  # (C, V), where values are possible for rows of one class only

    @classmethod
    def of(cls, rows: BlockRows, known: Tensor, values: Tensor, number: int, shown: ClassLogits) -> Self:
        """From the values 0 .. `number` - 1 (M,) of the `known` rows (M,), ascending.

        An answer counts by how far readers fitted without it believe it; where they are good, one they contradict is a
        slip, and the reading takes its place.
        """
        chunk = rows.taken(known.numpy())
        features = shown.beside(chunk._replace(features=chunk.features.to(rows.dtype)))
        even = torch.zeros_like(values)
        problem = rebalance(Problem.plain(features, values, number, rows.shape[1] / len(values)), even)
        allowed = _allowed(chunk, values, rows.num_classes, number)
        held_out = likely(held_out_values(problem), chunk.targets, allowed)
        trust = belief(held_out, values)
        right = held_out.argmax(1) == values
        slips = (trust < SLIP) & (right.double().mean() >= GOOD)
        trusted = Problem.of(features, values, number, 1 / rows.shape[1], trust.clamp(min=1e-3).to(features).numpy())
        head = fit_head(rebalance(trusted, even), LossSettings("ce"))
        kept = torch.where(slips, likely(head.logits(features), chunk.targets, allowed).argmax(1), values)
        return cls(head.weight, head.bias, known, kept, shown, reading_quality(right, values), allowed)

    def probabilities(self, chunk: RowChunk) -> Tensor:
        """How likely each value is (n, V)."""
        logits = LinearHead(self.weight, self.bias).logits(self.shown.beside(chunk))
        return likely(logits, chunk.targets, self.allowed)

    def guess(self, chunk: RowChunk) -> Tensor:
        return self.probabilities(chunk).argmax(1)


def likely(logits: Tensor, targets: Tensor, allowed: Tensor | None) -> Tensor:
    """Probabilities (n, V) of the values, of those only that a row's class can have."""
    logits = logits.double()
    return torch.softmax(logits if allowed is None else logits.masked_fill(~allowed[targets], float("-inf")), 1)


def sum_squares(chunk: RowChunk, heads: FoldHeads) -> Tensor:
    """Of the centred class logits of some rows."""
    logits = heads.held_out(chunk).double()
    return (logits - logits.mean(1, keepdim=True)).square().sum()


def held_out_values(problem: Problem) -> Tensor:
    """Logits of each value for each known row (M, V), by readers that were fitted without it."""
    inside = outside_folds(problem.targets, min(FOLDS, len(problem.targets)), seed=0)
    heads = []
    for part in map(problem.rows, inside):
        part = replace(part, weights=torch.ones_like(part.weights))
        heads.append(fit_head(rebalance(part, torch.zeros_like(part.targets)), LossSettings("ce")))
    return held_out_logits(problem, heads, inside)


def reading_quality(right: Tensor, values: Tensor) -> ReadingQuality:
    """Mean over values of the share that is right, with Wilson's interval for as many rows as that mean is worth.

    >>> print(reading_quality(torch.tensor([True] * 20 + [False] * 4), torch.tensor([0, 1] * 12)))
    83% right on 24 known samples it was not fitted to (64% to 93%)
    """
    accuracy, counts = balanced_share(right, values), values.unique(return_counts=True)[1].double()
    worth = float(len(counts) ** 2 / (1 / counts).sum())  # rows, were every value as frequent
    centre = (accuracy + Z**2 / (2 * worth)) / (1 + Z**2 / worth)
    reach = Z / (1 + Z**2 / worth) * (accuracy * (1 - accuracy) / worth + Z**2 / (4 * worth**2)) ** 0.5
    bounds = max(centre - reach, 0.0), min(centre + reach, 1.0)
    return ReadingQuality(accuracy, *bounds, len(values))


def _allowed(chunk: RowChunk, values: Tensor, num_classes: int, number: int) -> Tensor | None:
    """Which values (C, V) a class can have, where values are groups of class and attribute: each goes with one class only,
    and some class has several."""
    seen = torch.zeros(num_classes, number, dtype=torch.bool)
    seen[chunk.targets, values] = True
    if bool((seen.sum(0) > 1).any()) or not int(seen.sum()) > int(seen.any(1).sum()) > 1:
        return None
    return seen | ~seen.any(1, keepdim=True)
