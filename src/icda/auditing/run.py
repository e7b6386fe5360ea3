"""`icda.audit`, and the audit over blocks: from features and labels to an `Audit`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.auditing.assessment import assess
from icda.auditing.evidence import SAMPLES
from icda.auditing.inputs import DECAY, check_class_counts, check_folds, check_inputs, scarce_notes
from icda.auditing.recommendation import measure_imbalance, recommend
from icda.auditing.result import Audit
from icda.auditing.rows import (
    LabelNoise,
    RowForm,
    RowSums,
    cleanlab_issues,
    look_at_rows,
    prepare_folder,
    scaled_joint,
    sum_figures,
)
from icda.auditing.ties import class_costs, separability
from icda.engines import Engine
from icda.errors import InputError
from icda.extras import require
from icda.heads.blocks import Block, BlockRows, RowChunk, Say
from icda.heads.folds import find_contrast, find_ties
from icda.heads.problem import Problem
from icda.statistics.checks import check_number


@dataclass(frozen=True)
class AuditSettings:
    """Of the heads behind ties: inverse decay, folds, rounds of robust heads, seed, and when L-BFGS stops."""

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
        check_number(self.seed, "seed", "audit", whole=True)
        check_number(self.rounds, "rounds", "audit", 0, whole=True)
        if self.C is not None:
            check_number(self.C, "C", "audit")
            if self.C <= 0:
                raise InputError(f"C must be positive, got {self.C}.")

    def inverse_decay(self, rows: BlockRows) -> float:
        return 1 / (DECAY * rows.shape[0] * rows.shape[1]) if self.C is None else self.C


def audit(
    X: Any,
    y: Any,
    *,
    class_names: Sequence[object] | np.ndarray | None = None,
    sample_names: Sequence[object] | np.ndarray | None = None,
    C: float | None = None,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    use_cleanlab: bool = False,
) -> Audit:
    """Say which samples are tied to which wrong class, how strongly and at what cost, before any group label exists.

    Linear heads are fitted to standardised features, each without the samples it is asked about.

    Args:
        X: Features (N, A) of a frozen encoder, in memory or memory-mapped.
        y: Labels (N,) of any dtype.
        class_names: In the order of the sorted labels, or looked up by labels that are numbers.
        sample_names: Ids, paths or texts shown beside ranks (N,).
        C: The heads' inverse weight decay, by default 1000 / (N A).
        folds: Into how many parts the samples are cut.
        repeats: How often; more make ranks steadier and cost as many times the time.
        seed: Of folds and of the sample that verdicts rest on.
        use_cleanlab: Mark label issues by cleanlab's rule instead of ours.

    Returns:
        The findings.

    >>> generator = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 100)
    >>> X = generator.normal(size=(200, 8)) + 2 * (y == "dog")[:, None]
    >>> y[:5] = "dog"                              # five cats are called dogs
    >>> found = audit(X, y)
    >>> sorted(found.label_ranking()[:5].tolist())
    [0, 1, 2, 3, 4]
    """
    start = time.perf_counter()
    settings = AuditSettings(C, folds, seed=seed)
    check_number(repeats, "repeats", "audit", 1, whole=True)
    if use_cleanlab:
        require("cleanlab", "audit", "cleanlab's label issues")  # missing? Then say so before any work
    features, targets, names, samples = check_inputs(X, y, class_names, sample_names, folds)
    rows = BlockRows.of_memory(features, targets, len(names), folds, seed)
    logits, ties = find_ties(rows, _decay(rows, settings), settings.rounds, repeats, settings.max_iter, settings.tol)
    probabilities, labels = torch.softmax(logits.double(), 1).numpy(), targets.numpy()
    thresholds = np.bincount(labels, probabilities[np.arange(len(labels)), labels]) / rows.counts
    sums = sum_figures(0, logits, targets, ties, thresholds)
    if use_cleanlab:
        issues = cleanlab_issues(probabilities, labels)
        marked = sums.tied._replace(issue=issues)
        sums = replace(sums, tied=marked, doubtful=marked, issues=int(issues.sum()))
    whole = sums.tied
    sums = replace(sums, tied=whole.most_tied(None), doubtful=whole.most_doubtful(None))

    def of_sample(sample: RowChunk) -> tuple[Tensor, Tensor]:
        return logits[sample.rows], ties[sample.rows]

    result = _result(rows, settings, sums, thresholds, names, of_sample)
    named = {"C": settings.inverse_decay(rows), "folds": int(folds), "repeats": repeats, "seed": seed}
    return replace(
        result,
        noise=replace(result.noise, found_by="cleanlab" if use_cleanlab else "icda"),
        settings={**named, **_sizes(rows)},
        seconds=time.perf_counter() - start,
        ties=whole,
        probabilities=probabilities,
        sample_names=samples,
    )


def audit_blocks(
    blocks: Sequence[Block],
    engine: Engine | None = None,
    settings: AuditSettings | None = None,
    *,
    folder: Path | None = None,
    form: RowForm = "csv",
    say: Say | None = None,
) -> Audit:
    """Audit rows that stay where they are; with a `folder` each block's rows are written there as a file of their own."""
    start = time.perf_counter()
    settings, say = settings or AuditSettings(), say or (lambda _: None)
    dealt = {"dtype": settings.dtype, "folds": settings.folds, "seed": settings.seed}
    rows = BlockRows.gather(blocks, engine, say=say, check=check_class_counts, **dealt)  # type: ignore[arg-type]
    check_folds(settings.folds, rows.shape[0])
    limits = settings.rounds, settings.max_iter, settings.tol
    contrast, confidence = find_contrast(rows, _decay(rows, settings), *limits)
    thresholds = confidence.numpy() / rows.counts
    names = [str(label) for label in rows.reading.classes]
    if folder is not None:
        prepare_folder(folder)
    parts = rows.each(look_at_rows, contrast, thresholds, settings.top, folder, form)
    sums = reduce(lambda one, other: one.plus(other, settings.top), parts)

    def of_sample(sample: RowChunk) -> tuple[Tensor, Tensor]:
        return contrast.biased.held_out(sample), contrast.ties(sample)

    result = _result(rows, settings, sums, thresholds, names, of_sample)
    notes = list(result.notes)
    if len(result) > SAMPLES:
        notes.append(
            f"Verdicts and treatment rest on a sample of {SAMPLES} of the {len(result)} rows; class sizes, ties and label "
            "quality are those of all rows."
        )
    if not settings.rounds:
        notes.append("Without rounds the tie is the margin of plain heads: all rows that they get wrong are suspected.")
    return replace(result, notes=notes, seconds=time.perf_counter() - start)


def _result(
    rows: BlockRows,
    settings: AuditSettings,
    sums: RowSums,
    thresholds: np.ndarray,
    names: list[str],
    of_sample: Callable[[RowChunk], tuple[Tensor, Tensor]],
) -> Audit:
    """Everything that rests on sums over rows, and on the sample that verdicts rest on."""
    rows.say(f"Looking at a sample of {min(SAMPLES, rows.shape[0])} rows ...")
    assessment = assess(rows)
    sample = assessment.sample._replace(features=assessment.sample.features.to(rows.dtype))
    logits, ties = of_sample(sample)
    problem = Problem.plain(sample.features, sample.targets, len(names), _decay(rows, settings))
    apart = separability(problem, logits, ties > 0, settings.folds, settings.seed)
    imbalance = measure_imbalance(rows.counts, names)
    noise = LabelNoise(thresholds, scaled_joint(sums.confident, rows.counts), sums.issues)
    named = {
        "C": settings.inverse_decay(rows),
        **{name: getattr(settings, name) for name in ("folds", "rounds", "seed")},
    }
    return Audit(
        class_names=names,
        samples=rows.shape[0],
        costs=class_costs(sums, rows.counts, names),
        imbalance=imbalance,
        assessment=assessment,
        findings=recommend(assessment, imbalance, noise),
        noise=noise,
        matrix=sums.towards / rows.counts[:, None],
        separability=apart,
        tied=sums.tied,
        doubtful=sums.doubtful,
        notes=scarce_notes(names, rows.counts, settings.folds),
        settings={**named, **_sizes(rows), "blocks": len(rows.places), "passes": rows.passes},
        seconds=0.0,
    )


def _decay(rows: BlockRows, settings: AuditSettings) -> float:
    return 1 / (settings.inverse_decay(rows) * rows.shape[0])


def _sizes(rows: BlockRows) -> dict[str, int]:
    return dict(zip(("samples", "features"), rows.shape, strict=True))
