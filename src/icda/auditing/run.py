"""`icda.audit`, and the audit over blocks: from features and labels to an `Audit`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
)
from icda.auditing.ties import class_costs, separability
from icda.engines import Engine
from icda.errors import InputError
from icda.extras import require
from icda.heads.blocks import Block, BlockRows, Say
from icda.heads.folds import Contrast, HeldTies, find_contrast, find_ties
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
    top: int | None = 100  # rows of both rankings; None: all
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

    def decay(self, rows: BlockRows) -> float:
        return 1 / (self.inverse_decay(rows) * rows.shape[0])


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
    settings = AuditSettings(C, folds, seed=seed)
    check_number(repeats, "repeats", "audit", 1, whole=True)
    if use_cleanlab:
        require("cleanlab", "audit", "cleanlab's label issues")  # missing? Then say so before any work
    start = time.perf_counter()
    features, targets, names, samples = check_inputs(X, y, class_names, sample_names, folds)
    rows = BlockRows.of_memory(features, targets, len(names), folds, seed)
    rows = replace(rows, reading=replace(rows.reading, classes=np.array(names, dtype=object)))
    limits = settings.rounds, repeats, settings.max_iter, settings.tol
    held = find_ties(rows, settings.decay(rows), *limits)
    probabilities, labels = torch.softmax(held.logits.double(), 1).numpy(), targets.numpy()
    thresholds = np.bincount(labels, probabilities[np.arange(len(labels)), labels]) / rows.counts
    issues = cleanlab_issues(probabilities, labels) if use_cleanlab else None
    found = _audit(rows, replace(settings, top=None), held, thresholds, issues=issues)
    return replace(
        found,
        settings={**found.settings, "repeats": repeats},
        seconds=time.perf_counter() - start,
        ties=found.tied.chosen(np.argsort(found.tied.row)),
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
    start, settings = time.perf_counter(), settings or AuditSettings()
    dealt = {"dtype": settings.dtype, "folds": settings.folds, "seed": settings.seed}
    rows = BlockRows.gather(blocks, engine, say=say, check=check_class_counts, **dealt)  # type: ignore[arg-type]
    check_folds(settings.folds, rows.shape[0])
    limits = settings.rounds, settings.max_iter, settings.tol
    contrast, confidence = find_contrast(rows, settings.decay(rows), *limits)
    if folder is not None:
        prepare_folder(folder)
    found = _audit(rows, settings, contrast, confidence.numpy() / rows.counts, folder, form)
    notes = list(found.notes)
    if len(found) > SAMPLES:
        notes.append(
            f"Verdicts and treatment rest on a sample of {SAMPLES} of the {len(found)} rows; class sizes, ties and label "
            "quality are those of all rows."
        )
    if not settings.rounds:
        notes.append("Without rounds the tie is the margin of plain heads: all rows that they get wrong are suspected.")
    own = {"rounds": settings.rounds, "blocks": len(rows.places), "passes": rows.passes}
    return replace(found, notes=notes, settings={**found.settings, **own}, seconds=time.perf_counter() - start)


def _audit(
    rows: BlockRows,
    settings: AuditSettings,
    held: Contrast | HeldTies,
    thresholds: np.ndarray,
    folder: Path | None = None,
    form: RowForm = "csv",
    issues: np.ndarray | None = None,
) -> Audit:
    """Everything, by what heads say of rows that they have not seen: figures of all rows, their sums, and verdicts that
    rest on a sample. `issues` (N,) are labels that somebody else marked."""
    parts = rows.each(look_at_rows, held, thresholds, settings.top, folder, form, issues)
    sums: RowSums = reduce(lambda one, other: one.plus(other, settings.top), parts)
    rows.say(f"Looking at a sample of {min(SAMPLES, rows.shape[0])} rows ...")
    assessment = assess(rows)
    sample = assessment.sample._replace(features=assessment.sample.features.to(rows.dtype))
    logits, ties = held.judged(sample)
    names = [str(name) for name in rows.reading.classes]
    problem = Problem.plain(sample.features, sample.targets, len(names), settings.decay(rows))
    imbalance = measure_imbalance(rows.counts, names)
    joint = scaled_joint(sums.confident, rows.counts)
    noise = LabelNoise(thresholds, joint, sums.issues, "icda" if issues is None else "cleanlab")
    sizes = dict(zip(("samples", "features"), rows.shape, strict=True))
    return Audit(
        class_names=names,
        samples=rows.shape[0],
        costs=class_costs(sums, rows.counts, names),
        imbalance=imbalance,
        assessment=assessment,
        findings=recommend(assessment, imbalance, noise),
        noise=noise,
        matrix=sums.towards / rows.counts[:, None],
        separability=separability(problem, logits, ties > 0, settings.folds, settings.seed),
        tied=sums.tied,
        doubtful=sums.doubtful,
        notes=scarce_notes(names, rows.counts, settings.folds),
        settings={"C": settings.inverse_decay(rows), "folds": int(settings.folds), "seed": settings.seed, **sizes},
        seconds=0.0,
    )
