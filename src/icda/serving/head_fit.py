"""Heads for `icda fit`: the one that the audit recommends, or one by name, in memory and over blocks."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from icda._version import __version__
from icda.auditing.assessment import Assessment, draw_sample
from icda.auditing.inputs import DECAY
from icda.auditing.plan import FitPlan, plan_rows, treated_problem
from icda.auditing.treatment import Treatment
from icda.data.embedding.samples import Columns
from icda.data.own.blocks import find_blocks, number_kind
from icda.engines import Engine
from icda.errors import InputError
from icda.functional.prior import joint_counts
from icda.heads.blocks import BlockRows
from icda.heads.problem import AUGMENTED, LossName, LossSettings
from icda.heads.solver import LinearHead, fit_head
from icda.heads.spreading import AttributeReader, reading_head
from icda.registry import did_you_mean
from icda.serving.head import HeadModel, ShortcutReader

AUTO = "auto"
MAX_ITER = 200
PLAIN = "ce"  # what one would train without a look at the data
ALIASES = {"cross_entropy": "ce", "logit_adjustment": "la"}
SENTENCES = {
    "ce": "Cross entropy, nothing else.",
    "la": "Logit adjustment: the class prior is taken off.",
    "isda": "ISDA: implicit augmentation with the covariance of each class.",
    "risda": "RISDA: implicit augmentation with the classes that a sample is confused with.",
    "icda": "ICDA: implicit counterfactual augmentation, with logit adjustment.",
}
ALL_ROWS = (
    "The file names a split. Over blocks all rows are fitted, those of the test split too: to judge the model, write the "
    "rows for the fit into a file of their own."
)


@dataclass(frozen=True)
class Head:
    """A fitted head for features as they come, and what was done to get it."""

    classes: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    C: float  # inverse weight decay on standardised features
    treatment: Treatment | None  # None where the user named the method
    assessment: Assessment | None
    shortcut: ShortcutReader | None
    iterations: int
    converged: bool


def check_method(name: str) -> str:
    """The name of a head; `auto` does what the audit recommends.

    >>> check_method("logit_adjustment")
    'la'
    >>> check_method("icad")
    Traceback (most recent call last):
    icda.errors.InputError: --method is 'icad': did you mean 'icda'? Known: auto, ce, la, isda, ...
    """
    name = ALIASES.get(name, name)
    known = (AUTO, *get_args(LossName))
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(
            f"--method is {name!r}: {hint}Known: {', '.join(known)}; with --train any of `icda list methods`."
        )
    return name


def fit_rows(rows: BlockRows, method: str, assessment: Assessment | None = None) -> Head:
    """Audit, treat and fit (`auto`), or fit the named loss, in memory and over blocks.

    Where rows know their groups nothing has to be guessed: `auto` takes the prior, or the weights, of the groups. An
    `assessment` of the same rows spares the audit.
    """
    settings = LossSettings("la" if method == AUTO else method)  # type: ignore[arg-type]
    plan = FitPlan(Treatment("logit_adjustment", []))
    if method == AUTO:
        plan = plan_rows(rows, assessment)
    if plan.assessment is not None:
        rows.say(plan.assessment.summary)
    # For another loss the decay is chosen as for the recommended head: what is compared is the loss.
    problem, treatment = treated_problem(rows, plan, settings)
    head = fit_head(problem, settings, MAX_ITER, 1e-4)
    if not head.converged:
        warnings.warn(
            f"the fit stopped after {MAX_ITER} steps, short of its optimum.", ConvergenceWarning, stacklevel=2
        )
    plain, shortcut = rows.unscaled(head), None
    if isinstance(plan.reader, AttributeReader) and treatment.name in ("shortcut_prior", "group_prior"):
        shortcut = reader_of_new(rows, plan.reader, plan.assessment)
    done, C = treatment if method == AUTO else None, 1 / (problem.decay * rows.shape[0])
    how = head.iterations, head.converged
    return Head(
        rows.reading.classes, plain.weight.numpy(), plain.bias.numpy(), C, done, plan.assessment, shortcut, *how
    )


def done_in_words(method: str, head: Head) -> str:
    """What was done; the audit's expectation is left out, for the trial says what came of it."""
    return SENTENCES[method] if head.treatment is None else head.treatment.description


def reader_of_new(rows: BlockRows, reader: AttributeReader, assessment: Assessment | None) -> ShortcutReader:
    """A head that reads off new samples what the shortcut says of them, or the group that was named for some, and the
    class that each value points to."""
    if assessment is not None:
        head, values, targets = LinearHead(reader.weight, reader.bias), reader.values, assessment.sample.targets
    else:  # one that sees the features alone learns what was read off them and off the class
        chunk = rows.everything if rows.in_memory else draw_sample(rows)
        targets, values = chunk.targets, rows.gathered(reader.read) if rows.in_memory else reader.read(chunk)
        head = reading_head(chunk.features, targets, values, rows.num_classes, DECAY * rows.shape[1])
    towards = joint_counts(values, targets, len(head.bias), rows.num_classes).argmax(1)
    plain = rows.unscaled(LinearHead(head.weight.to(rows.dtype), head.bias.to(rows.dtype)))
    return ShortcutReader(plain.weight.numpy(), plain.bias.numpy(), towards.numpy())


def fit_from_blocks(
    path: Path, wanted: Columns, method: str, engine: Engine, say: Callable[[str], None] | None = None, seed: int = 0
) -> HeadModel:
    """The model: the named loss, or what the audit of a sample calls for (`auto`), fitted to all rows.

    There is no trial: judge the model with `icda predict` on rows that were kept apart.
    """
    name = check_method(method)
    blocks, say = find_blocks(path, wanted), say or (lambda _: None)
    notes = [ALL_ROWS] if blocks[0].names_split else []
    for note in notes:
        say(note)
    dtype, full = number_kind(blocks[0]), name in AUGMENTED
    known = wanted.groups is not None
    rows = BlockRows.gather(blocks, engine, full=full, dtype=dtype, seed=seed, say=say, groups=known)
    head = fit_rows(rows, name)
    facts: dict[str, object] = {"icda": __version__, "method": name, "done": done_in_words(name, head), "C": head.C}
    if head.assessment is not None:
        facts["found"] = head.assessment.summary
    if head.treatment is not None:
        facts["treatment"] = head.treatment.as_dict()
    facts |= {
        "notes": notes,
        "samples": rows.shape[0],
        "class_counts": dict(zip(map(str, head.classes), rows.counts.tolist(), strict=True)),
        "iterations": head.iterations,
        "converged": head.converged,
        "passes": rows.passes,
    }
    label = None if path.suffix.lower() == ".npy" else wanted.labels
    return HeadModel(
        head.classes, head.coef, head.intercept, replace(blocks[0].reads, label=label), head.shortcut, facts
    )
