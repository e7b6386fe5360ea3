"""Heads fitted to rows that are never in one place: what is asked of a block is a sum, and sums add up.

The loss of a head is a sum over samples, given the moments of the logits within the classes. Those are W mu_j and
W Sigma_j W^T: with class means and covariances gathered once, one pass over the blocks gives value and gradient. What
comes back from a block has the size of the head, not of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from icda.errors import InputError
from icda.linear.evaluation import Slope, augmentation_tables, softmax_gradient_
from icda.linear.objective import LossSettings
from icda.linear.rows import rows_per_chunk
from icda.losses.terms.prior import attribute_log_prior
from icda.statistics import ClassStatistics
from icda.statistics.confusion import count_confusions
from icda.strength import direct_strength

KNOWN = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))  # to torch


class Block(Protocol):
    """Some rows that whoever holds this can read: features (n, A) and labels (n,), or the labels alone."""

    def __len__(self) -> int: ...

    def labels(self) -> np.ndarray: ...

    def read(self) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Scaling:
    """What is taken off each feature and what it is divided by."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, statistics: ClassStatistics) -> Scaling:
        """Mean and standard deviation of all samples, from those of the classes; a constant feature is divided by 1."""
        share = (statistics.count / statistics.count.sum())[:, None]
        mean = (share * statistics.mean).sum(0)
        within = statistics.covariance
        variances = within.diagonal(dim1=1, dim2=2) if within.ndim == 3 else within
        deviation = (share * (variances + (statistics.mean - mean).square())).sum(0).sqrt()
        least = float(statistics.count.sum()) * torch.finfo(torch.float64).eps * mean.abs()
        return cls(mean, torch.where(deviation <= least, 1.0, deviation))


class Moments(NamedTuple):
    """Means (C, A) and covariances (C, A, A) of the scaled features within the classes."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, statistics: ClassStatistics, scaling: Scaling, dtype: torch.dtype) -> Moments:
        covariance = statistics.covariance / (scaling.scale[:, None] * scaling.scale)
        return cls(((statistics.mean - scaling.mean) / scaling.scale).to(dtype), covariance.to(dtype))

    def of_logits(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Means (C, C) and covariances (C, C, C) of the logits that a head gives."""
        return self.mean @ weight.T, weight @ (self.covariance @ weight.T)


class Summary(NamedTuple):
    """What is known of a block, or of several: statistics of the classes, and a few rows as they are."""

    statistics: ClassStatistics
    rows: Tensor

    def merge(self, other: Summary) -> Summary:
        return Summary(self.statistics.merge(other.statistics), torch.cat([self.rows, other.rows]))


@dataclass(frozen=True)
class AttributeReader:
    """A linear head (K, A) that reads an attribute of K values off the features, and how far its prior is trusted."""

    weight: Tensor
    bias: Tensor
    strength: float = 1.0

    def scaled(self, scaling: Scaling, dtype: torch.dtype) -> AttributeReader:
        """The same head for scaled features."""
        weight, bias = self.weight.double(), self.bias.double()
        moved = bias + weight @ scaling.mean
        return replace(self, weight=(weight * scaling.scale).to(dtype), bias=moved.to(dtype))

    def read(self, features: Tensor) -> Tensor:
        return torch.addmm(self.bias, features, self.weight.T).argmax(1)


class AttributePrior(NamedTuple):
    """log P(y | attribute) (K, C) as far as it is trusted, the prior of the classes for the rest; and how to read it."""

    reader: AttributeReader
    table: Tensor

    @classmethod
    def of(cls, reader: AttributeReader, counts: Tensor) -> AttributePrior:
        """From the numbers (K, C) of rows with each value and class."""
        given = torch.log_softmax(attribute_log_prior(counts.double()), 1)
        classes = torch.log_softmax(counts.double().sum(0).clamp(min=0.5).log(), 0)
        mixed = reader.strength * given + (1 - reader.strength) * classes
        return cls(reader, mixed.to(reader.weight))


@dataclass(frozen=True)
class Question:
    """What is asked of every block in one pass: value and gradient at a head."""

    settings: LossSettings
    classes: np.ndarray
    scaling: Scaling
    total: int  # samples in all blocks
    weight: Tensor
    shift: Tensor  # (C,), bias and prior
    spread: Tensor | None = None  # tables of `augmentation_tables`, for losses that have them
    offsets: Tensor | None = None
    angles: Tensor | None = None  # the head whose angles are the strengths
    prior: AttributePrior | None = None  # what each row adds to its logits by itself


class Answer(NamedTuple):
    """A block's part of the mean loss and of its gradients."""

    value: float
    to_weight: Tensor
    to_bias: Tensor
    to_spread: Tensor | None = None
    to_offsets: Tensor | None = None

    def plus(self, other: Answer) -> Answer:
        pairs = zip(self, other, strict=True)
        return Answer(*(None if mine is None else mine + theirs for mine, theirs in pairs))  # type: ignore[operator, arg-type]


def count_labels(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """The distinct labels of a block and how often each is there."""
    labels = block.labels()
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(f"the labels of {block} hold NaN: fill them or drop those rows.")
    return np.unique(labels, return_counts=True)


def merge_counts(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and counts of all blocks.

    >>> merge_counts([(np.array(["a"]), np.array([2])), (np.array(["a", "b"]), np.array([1, 5]))])
    (array(['a', 'b'], dtype='<U1'), array([3, 5]))
    """
    labels, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, np.bincount(codes, counts).astype(np.int64)


def summarise(block: Block, classes: np.ndarray, full: bool, every: int) -> Summary:
    """Class statistics of a block, with covariances if `full`, and each `every`-th row."""
    features, labels = block.read()
    statistics = ClassStatistics(len(classes), features.shape[1], "full" if full else "diagonal").double()
    rows = torch.from_numpy(np.array(features[::every], dtype=np.float64))
    for part, targets in _chunks(features, labels, classes, torch.float64):
        if not torch.isfinite(part).all():
            raise InputError(f"the features of {block} hold NaN or infinite values: fill or drop those rows.")
        statistics.fold(part, targets)
    return Summary(statistics, rows)


def merge_summaries(parts: Iterable[Summary]) -> Summary:
    return reduce(Summary.merge, parts)


def answer(block: Block, question: Question) -> Answer:
    """The block's part of value and gradient: one pass over its rows."""
    scaled = scaled_chunks(block, question.classes, question.scaling, question.weight.dtype)
    return reduce(Answer.plus, (_answer_rows(part, targets, question) for part, targets in scaled))


def count_mistakes(block: Block, classes: np.ndarray, scaling: Scaling, weight: Tensor, bias: Tensor) -> Tensor:
    """How often a head takes each class (row) for each class (column) in a block, (C, C)."""
    counts = torch.zeros(len(classes), len(classes), dtype=torch.long)
    for part, targets in scaled_chunks(block, classes, scaling, weight.dtype):
        counts += count_confusions(torch.addmm(bias, part, weight.T).argmax(1), targets, len(classes))
    return counts


def count_attributes(block: Block, classes: np.ndarray, scaling: Scaling, reader: AttributeReader) -> Tensor:
    """How many rows of a block have each value of the attribute and each class, (K, C)."""
    counts = torch.zeros(len(reader.bias), len(classes), dtype=torch.long)
    for part, targets in scaled_chunks(block, classes, scaling, reader.weight.dtype):
        pairs = reader.read(part) * len(classes) + targets
        counts += torch.bincount(pairs, minlength=counts.numel()).view_as(counts)
    return counts


def scaled_chunks(
    block: Block, classes: np.ndarray, scaling: Scaling, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Scaled features of a block's rows and the numbers of their classes, a chunk at a time."""
    features, labels = block.read()
    mean, scale = scaling.mean.to(dtype), scaling.scale.to(dtype)
    for part, targets in _chunks(features, labels, classes, dtype):
        yield part.sub_(mean).div_(scale), targets


def _chunks(
    features: np.ndarray, labels: np.ndarray, classes: np.ndarray, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    targets = torch.from_numpy(np.searchsorted(classes, labels))
    step = rows_per_chunk(features.shape[1], dtype)
    for start in range(0, len(features), step):
        copied = np.array(features[start : start + step])
        # torch widens half precision much faster than NumPy; other numbers, or bytes in another order, it may not know.
        part = torch.from_numpy(copied if copied.dtype in KNOWN else copied.astype(np.float64))
        yield part.to(dtype), targets[start : start + step]


def _answer_rows(features: Tensor, targets: Tensor, question: Question) -> Answer:
    mass = features.new_full((len(features),), 1 / question.total)
    if question.spread is None:
        logits = torch.addmm(question.shift, features, question.weight.T)
        if question.prior is not None:
            logits += question.prior.table[question.prior.reader.read(features)]
        value = softmax_gradient_(logits, targets, mass)
        return Answer(value, logits.T @ features, logits.sum(0))
    order = torch.argsort(targets, stable=True)
    features, targets = features[order], targets[order]
    logits = torch.addmm(question.shift, features, question.weight.T)
    towards, margin = None, None
    if question.settings.name == "icda":
        assert question.angles is not None
        strength = direct_strength(features, targets, question.angles)
        towards = (strength.per_class / (len(question.classes) - 1)).to(features)
        margin = question.settings.beta * strength.per_sample.to(features)
    found = _augmented_(logits, targets, mass, question, towards, margin)
    return found._replace(to_weight=logits.T @ features)


def _augmented_(
    logits: Tensor, targets: Tensor, mass: Tensor, question: Question, towards: Tensor | None, margin: Tensor | None
) -> Answer:
    """Turn logits, sorted by label, into gradients, in place: `AugmentedObjective` with the tables as constants."""
    spread, offsets = question.spread, question.offsets
    assert spread is not None
    assert offsets is not None
    value, to_spread, to_offsets = 0.0, torch.zeros_like(spread), torch.zeros_like(offsets)
    start = 0
    for label, size in enumerate(torch.bincount(targets, minlength=len(offsets)).tolist()):
        span = slice(start, start + size)
        start += size
        if not size:
            continue
        block = logits[span]
        if towards is None:
            block += offsets[label]
        else:
            assert margin is not None
            block.add_(spread[label, label]).addmm_(towards[span], spread[label])
            block.addcmul_(towards[span], offsets[label])
            block[:, label] -= margin[span]
        value += softmax_gradient_(block, targets[span], mass[span])
        sums = block.sum(0)
        if towards is None:
            to_offsets[label] += sums
        else:
            to_spread[label] += towards[span].T @ block
            to_spread[label, label] += sums
            to_offsets[label] += (towards[span] * block).sum(0)
    return Answer(value, logits[:0], logits.sum(0), to_spread, to_offsets)


class BlockObjective:
    """The mean loss over all blocks as a function of weight and bias: one pass for value and gradient."""

    def __init__(
        self, ask: Any, question: Question, constant: Tensor, moments: Moments | None, relations: Tensor | None = None
    ) -> None:
        """`ask` gives the answers of all blocks to a `Question`, one by one; `relations` are RISDA's confusions."""
        self.ask, self.question, self.constant, self.moments = ask, question, constant, moments
        self.relations = relations

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        question = replace(self.question, weight=weight, shift=bias + self.constant)
        if self.moments is None:
            found = reduce(Answer.plus, self.ask(question))
            return Slope(found.value, found.to_weight, found.to_bias)
        leaf = weight.clone().requires_grad_()
        with torch.enable_grad():
            tables = augmentation_tables(question.settings, *self.moments.of_logits(leaf), self.relations)
        spread, offsets = (table.detach() for table in tables)
        found = reduce(Answer.plus, self.ask(replace(question, spread=spread, offsets=offsets)))
        slopes = (found.to_spread, found.to_offsets)
        through = torch.autograd.grad(tables, leaf, slopes)[0]
        return Slope(found.value, found.to_weight + through, found.to_bias)


def rows_in(blocks: Sequence[Block]) -> int:
    return sum(map(len, blocks))
