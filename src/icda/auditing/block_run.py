"""The audit over blocks of rows: `icda audit --on blocks` and `--on ray`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.auditing.assessment import Assessment
from icda.auditing.block_result import BlockAudit, costs_of
from icda.auditing.block_rows import (
    MarginSums,
    RowForm,
    RowQuestion,
    RowSums,
    look_at_rows,
    prepare_folder,
    sum_margins,
)
from icda.auditing.block_sample import BlockOutline, BlockSample, assess_sample, draw_sample, outline_blocks
from icda.auditing.evidence import SAMPLES
from icda.auditing.imbalance import measure_imbalance
from icda.auditing.inputs import check_folds, default_inverse_decay, scarce_notes
from icda.auditing.label_noise import NoiseFigures, scaled_joint
from icda.auditing.recommendation import recommend
from icda.auditing.ties import Separability, separability
from icda.engines import Engine, Here
from icda.errors import InputError
from icda.linear.block_fit import Say
from icda.linear.block_folds import (
    Contrast,
    Dealing,
    FoldHeads,
    FoldQuestion,
    balanced_masses,
    count_cells,
    fit_fold_heads,
)
from icda.linear.blocks import Block
from icda.linear.descent import METRIC_SHARE, Metric
from icda.linear.problem import Problem
from icda.linear.threads import threads_for

ROBUST_DECAY = 10.0  # times the decay, for heads that have few rows in the rarest group, as in `contrast_groups`


@dataclass(frozen=True)
class BlockAuditSettings:
    """As `icda.audit`; `rounds` of robust heads stand behind a tie, and without any it is the margin of plain ones."""

    C: float | None = None
    folds: int = 5
    rounds: int = 4
    seed: int = 0
    max_iter: int = 100
    tol: float = 1e-3
    top: int = 100
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_folds(self.folds)
        if self.C is not None and not 0 < self.C < float("inf"):
            raise InputError(f"C must be positive and finite, got {self.C}.")
        if self.rounds < 0:
            raise InputError(f"rounds must be 0 or more, got {self.rounds}.")


def audit_blocks(
    blocks: Sequence[Block],
    engine: Engine | None = None,
    settings: BlockAuditSettings | None = None,
    *,
    folder: Path | None = None,
    form: RowForm = "csv",
    say: Say | None = None,
) -> BlockAudit:
    """Audit rows that stay where they are; with a `folder` each block's rows are written there as a file of their own.

    Verdicts and treatment rest on a sample of the rows, class sizes on all. Ties, strengths and the quality of labels are
    those of `icda.audit` with two differences: folds are dealt by a row's place, so that they are the same however rows
    are cut into blocks, and robust heads have the folds of the biased ones, where `icda.audit` deals them by group.
    """
    start = time.perf_counter()
    settings, engine, say = settings or BlockAuditSettings(), engine or Here(), say or (lambda _: None)
    outline = outline_blocks(blocks, engine, say)
    sample = draw_sample(outline, engine, settings.folds, settings.seed)
    say(f"Looking at a sample of {len(sample.targets)} rows ...")
    assessment, asked = assess_sample(sample, outline.counts, settings.seed)
    ranking = _Ranking(outline, engine, settings, say)
    with threads_for(ranking.products):
        contrast, confidence = ranking.contrast()
        say("Looking at every row ...")
        thresholds = confidence / outline.counts
        question = RowQuestion(ranking.dealing, contrast, thresholds, ranking.names, settings.top, folder, form)
        sums = ranking.sum_rows(question)
    result = ranking.result(assessment, thresholds, sums, ranking.separability_of(asked, contrast))
    return replace(result, seconds=time.perf_counter() - start)


class _Ranking:
    """Heads that have not seen the rows they are asked about, and what they say of every row."""

    def __init__(self, outline: BlockOutline, engine: Engine, settings: BlockAuditSettings, say: Say) -> None:
        self.outline, self.engine, self.settings, self.say = outline, engine, settings, say
        rows, width = int(outline.counts.sum()), outline.width
        self.C = default_inverse_decay(rows, width) if settings.C is None else settings.C
        self.decay = 1 / (self.C * rows)
        self.dealing = Dealing(outline.classes, outline.scaling, settings.folds, settings.seed, settings.dtype)
        self.passes = 3  # labels, statistics, sample
        self.metric = None
        if width**2 <= METRIC_SHARE * rows * len(outline.classes):
            steering = (outline.steering - outline.scaling.mean) / outline.scaling.scale
            self.metric = Metric.of(steering, self.decay, 1 / len(outline.classes))

    def contrast(self) -> tuple[Contrast, np.ndarray]:
        """Biased and robust heads, and the sum of the probabilities (C,) that the biased ones give to the labels."""
        found = Contrast(self._fit(None, self.decay))
        sums = self._margins(found)
        found = replace(found, deviation=sums.deviation)
        for _ in range(self.settings.rounds):
            robust = self._fit(found, ROBUST_DECAY * self.decay, found.robust)
            found = replace(found, robust=robust)
            found = replace(found, robust_deviation=self._margins(found).deviation)
        return found, sums.confidence

    @property
    def products(self) -> int:
        """How many numbers one pass over a block multiplies, in this process."""
        rows = max(map(len, self.outline.places))
        return rows * self.outline.width * self.settings.folds * len(self.outline.classes)

    @property
    def names(self) -> list[str]:
        return [str(label) for label in self.outline.classes]

    def sum_rows(self, question: RowQuestion) -> RowSums:
        if question.folder is not None:
            prepare_folder(question.folder)
        self._pass()
        parts = self.engine.each(look_at_rows, self.outline.places, question)
        return reduce(lambda one, other: one.plus(other, question.top), parts)

    def separability_of(self, sample: BlockSample, contrast: Contrast) -> Separability | None:
        """Asked of the sample: all that it needs is in memory."""
        features = sample.features.to(self.settings.dtype)
        logits = contrast.biased.held_out(features, sample.folds)
        hurt = contrast.ties(features, sample.targets, sample.folds, logits) > 0
        inverse = 1 / (self.decay * len(features))
        problem = Problem.of(sample.features, sample.targets, len(self.outline.classes), inverse)
        return separability(problem, logits, hurt, self.settings.folds, self.settings.seed)

    def result(
        self, assessment: Assessment, thresholds: np.ndarray, sums: RowSums, apart: Separability | None
    ) -> BlockAudit:
        """Everything together, but for the time it took."""
        counts, names = self.outline.counts, self.names
        noise = NoiseFigures(thresholds, scaled_joint(sums.confident, counts), sums.issues)
        imbalance = measure_imbalance(counts, names)
        return BlockAudit(
            class_names=names,
            costs=costs_of(sums, counts, names),
            imbalance=imbalance,
            assessment=assessment,
            findings=recommend(assessment, imbalance, noise),
            notes=[*scarce_notes(names, counts, self.settings.folds), *_notes(int(counts.sum()), self.settings)],
            settings=self.record(),
            seconds=0.0,
            samples=int(counts.sum()),
            noise=noise,
            matrix=sums.towards / counts[:, None],
            separability=apart,
            suspected=int(sums.tied_to.sum()),
            tied=sums.tied,
            doubtful=sums.doubtful,
            passes=self.passes,
        )

    def record(self) -> dict[str, object]:
        settings = self.settings
        named = {"C": self.C, "folds": settings.folds, "rounds": settings.rounds, "seed": settings.seed}
        sizes = {"samples": int(self.outline.counts.sum()), "features": self.outline.width}
        return {**named, **sizes, "blocks": len(self.outline.places), "passes": self.passes}

    def _fit(self, contrast: Contrast | None, decay: float, start: FoldHeads | None = None) -> FoldHeads:
        settings, places = self.settings, self.outline.places
        self._pass()
        parts = self.engine.each(count_cells, places, self.dealing, contrast)
        masses = balanced_masses(reduce(Tensor.add, parts))
        empty = torch.empty(0)
        question = FoldQuestion(self.dealing, masses, contrast, empty, empty)
        limits = settings.max_iter, settings.tol
        return fit_fold_heads(places, self.engine, question, decay, *limits, self.metric, self._pass, start)

    def _margins(self, contrast: Contrast) -> MarginSums:
        self._pass()
        return reduce(MarginSums.plus, self.engine.each(sum_margins, self.outline.places, self.dealing, contrast))

    def _pass(self) -> None:
        self.passes += 1
        self.say(f"Pass {self.passes} over the rows ...")


def _notes(rows: int, settings: BlockAuditSettings) -> list[str]:
    notes = []
    if rows > SAMPLES:
        notes.append(
            f"Verdicts and treatment rest on a sample of {SAMPLES} of the {rows} rows; class sizes, ties and label "
            "quality are those of all rows."
        )
    if not settings.rounds:
        notes.append("Without rounds the tie is the margin of plain heads: all rows that they get wrong are suspected.")
    return notes
