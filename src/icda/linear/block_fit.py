"""Fit a head to blocks of rows, wherever they lie and wherever they are worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from icda.engines import Engine, Here
from icda.errors import InputError
from icda.linear.blocks import (
    Answer,
    AttributePrior,
    AttributeReader,
    Block,
    BlockObjective,
    Moments,
    Question,
    Scaling,
    answer,
    count_attributes,
    count_labels,
    count_mistakes,
    merge_counts,
    merge_summaries,
    rows_in,
    summarise,
)
from icda.linear.descent import METRIC_SHARE, SAMPLED, Descent, Metric, descend
from icda.linear.evaluation import Slope
from icda.linear.objective import LossSettings
from icda.linear.solver import ICDA_START, START_SLACK, memory_of

LOSSES = ("ce", "la", "isda", "risda", "icda")
AUGMENTED = ("isda", "risda", "icda")  # losses that need covariances of the classes
Say = Callable[[str], None]


@dataclass(frozen=True)
class BlockFit:
    """A head for features as they come, what was counted on the way, and what it took."""

    classes: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    class_counts: np.ndarray
    iterations: int
    converged: bool
    passes: int  # over all rows, those for labels and statistics included
    value: float = field(default=float("nan"))


def fit_blocks(
    blocks: Sequence[Block],
    settings: LossSettings,
    decay: Callable[[int, int], float],
    engine: Engine | None = None,
    *,
    max_iter: int = 200,
    tol: float = 1e-4,
    rounds: int = 3,
    dtype: torch.dtype = torch.float32,
    say: Say | None = None,
    attribute: AttributeReader | None = None,
) -> BlockFit:
    """Scale the features to mean 0 and variance 1 and fit, as `fit_head` would with all rows in memory.

    Every pass asks each block one question and adds the answers, in the order of the blocks: the head does not depend on
    the engine. `decay` is asked with the numbers of samples and features. With an `attribute`, which is read off the
    features of each row, the prior of the classes given the attribute takes the place of that of the classes.
    """
    _check_asked(blocks, settings, attribute)
    engine, say = engine or Here(), say or (lambda _: None)
    say(f"Counting the labels of {rows_in(blocks)} rows in {len(blocks)} blocks ...")
    classes, counts = merge_counts(engine.each(count_labels, blocks))
    if len(classes) < 2:
        raise InputError(f"a classifier needs at least 2 classes, got one: {str(classes[0])!r}.")
    say(f"Gathering the statistics of {len(classes)} classes ...")
    full = settings.name in AUGMENTED
    width = blocks[0].read()[0].shape[1]
    every = max(1, int(counts.sum()) // (SAMPLED * width))
    summary = merge_summaries(engine.each(summarise, blocks, classes, full, every))
    scaling = Scaling.of(summary.statistics)
    moments = Moments.of(summary.statistics, scaling, dtype) if full else None
    job = _Job(blocks, engine, settings, classes, counts, scaling, moments, decay(int(counts.sum()), width), dtype, say)
    metric = None
    if width**2 <= METRIC_SHARE * int(counts.sum()) * len(classes):
        metric = Metric.of((summary.rows - scaling.mean) / scaling.scale, job.decay, 1 / len(classes))
    if attribute is not None:
        job.prior = job.prior_of(attribute)
    return job.finished(job.fit(max_iter, tol, rounds, metric))


def _check_asked(blocks: Sequence[Block], settings: LossSettings, attribute: AttributeReader | None) -> None:
    if settings.name not in LOSSES:
        raise InputError(f"blocks are fitted with {', '.join(LOSSES)}, got {settings.name!r}: use one process.")
    if not blocks:
        raise InputError("there are no rows.")
    if attribute is not None and settings.name != "la":
        raise InputError(f"blocks take the prior of an attribute with la, got {settings.name!r}.")


@dataclass(frozen=True)
class OneRow:
    """The objective of two classes as a function of the difference of their rows (1, A)."""

    objective: BlockObjective

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        slope = self.objective(torch.cat([-0.5 * weight, 0.5 * weight]), torch.cat([-0.5 * bias, 0.5 * bias]))
        to_weight, to_bias = (0.5 * (part[1:] - part[:1]) for part in (slope.to_weight, slope.to_bias))
        return Slope(slope.value, to_weight, to_bias)


@dataclass
class _Job:
    blocks: Sequence[Block]
    engine: Engine
    settings: LossSettings
    classes: np.ndarray
    counts: np.ndarray
    scaling: Scaling
    moments: Moments | None
    decay: float
    dtype: torch.dtype
    say: Say
    prior: AttributePrior | None = None
    passes: int = 2
    iterations: int = 0

    def fit(self, max_iter: int, tol: float, rounds: int, metric: Metric | None) -> Descent:
        zero = torch.zeros(len(self.classes), len(self.scaling.mean) + 1, dtype=self.dtype)
        name = self.settings.name
        if name not in ("icda", "risda"):
            return self._descend(self.settings, zero, max_iter, tol, metric)
        # As in `fit_head`: a few plain steps of logit adjustment say where the samples lie; confusions need a good head.
        steps, way = (min(max_iter, ICDA_START), None) if name == "icda" else (max_iter, metric)
        found = self._descend(LossSettings("la"), zero, steps, START_SLACK * tol, way)
        for _ in range(rounds):
            angles = found.parameters[:, :-1].contiguous() if name == "icda" else None
            relations = self._relations(found.parameters) if name == "risda" else None
            found = self._descend(self.settings, found.parameters, max_iter, tol, metric, angles, relations)
            if found.iterations <= 1:
                break
        return found

    def prior_of(self, attribute: AttributeReader) -> AttributePrior:
        """The prior of the classes given the attribute, counted in one pass."""
        reader = attribute.scaled(self.scaling, self.dtype)
        parts = self.engine.each(count_attributes, self.blocks, self.classes, self.scaling, reader)
        self.passes += 1
        return AttributePrior.of(reader, sum(parts, torch.zeros(len(reader.bias), len(self.classes))))

    def _relations(self, head: Tensor) -> Tensor:
        """RISDA's K: the row-normalised confusion matrix of a head on all rows, one pass."""
        self.passes += 1
        weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()
        parts = self.engine.each(count_mistakes, self.blocks, self.classes, self.scaling, weight, bias)
        counts = sum(parts, torch.zeros(len(head), len(head), dtype=torch.long)).to(self.dtype)
        return counts / counts.sum(1, keepdim=True).clamp(min=1e-12)

    def _descend(
        self,
        settings: LossSettings,
        begin: Tensor,
        max_iter: int,
        tol: float,
        metric: Metric | None,
        angles: Tensor | None = None,
        relations: Tensor | None = None,
    ) -> Descent:
        constant = torch.zeros(len(self.classes), dtype=torch.float64)
        if settings.name in ("la", "icda") and self.prior is None:
            constant = torch.from_numpy(self.counts).double().log()
            constant = constant - constant.max()
        question = Question(
            settings,
            self.classes,
            self.scaling,
            int(self.counts.sum()),
            begin[:, :-1],
            begin[:, -1],
            angles=angles,
            prior=self.prior,
        )
        moments = self.moments if settings.name in AUGMENTED else None
        objective = BlockObjective(self._ask, question, constant.to(self.dtype), moments, relations)
        memory = memory_of(settings)
        if len(begin) > 2:
            found = descend(objective, begin, self.decay, max_iter, tol, memory, metric)
        else:  # two opposite rows: one does, and takes the way that `fit_head` takes
            found = descend(OneRow(objective), 2 * begin[1:], 0.5 * self.decay, max_iter, tol, memory)
            found = found._replace(parameters=torch.cat([-0.5 * found.parameters, 0.5 * found.parameters]))
        self.iterations += found.iterations
        return found

    def _ask(self, question: Question) -> Iterator[Answer]:
        self.passes += 1
        self.say(f"Pass {self.passes} over the rows ...")
        return self.engine.each(answer, self.blocks, question)

    def finished(self, found: Descent) -> BlockFit:
        """The head for features as they come: w . (x - mean) / scale + b."""
        head = found.parameters.double()
        coef = head[:, :-1] / self.scaling.scale
        intercept = head[:, -1] - coef @ self.scaling.mean
        kind = np.float64 if self.dtype == torch.float64 else np.float32
        arrays = coef.numpy().astype(kind), intercept.numpy().astype(kind)
        return BlockFit(self.classes, *arrays, self.counts, self.iterations, found.converged, self.passes, found.value)
