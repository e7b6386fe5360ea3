"""Heads for `icda fit`: the one that the audit recommends, or one by name, in memory and over blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from icda._version import __version__
from icda.auditing.assessment import Assessment, assess, draw_sample
from icda.auditing.evidence import SAMPLES
from icda.auditing.inputs import DECAY
from icda.auditing.plan import Grouping, attribute_reader, chosen_decay, find_groups, treated_problem
from icda.auditing.treatment import Treatment
from icda.data.embedding.samples import Columns
from icda.data.missing import is_missing
from icda.data.own.blocks import find_blocks, number_kind
from icda.engines import Engine
from icda.errors import InputError
from icda.estimators.robust import RobustClassifier
from icda.estimators.samples import weighted_moments
from icda.functional.prior import joint_counts
from icda.heads.blocks import BlockRows
from icda.heads.cross_fit import GROUP_SMOOTHING
from icda.heads.dealing import draw_rows
from icda.heads.problem import AUGMENTED, LossName, LossSettings, Problem
from icda.heads.solver import LinearHead, fit_head
from icda.heads.spreading import fit_reader
from icda.registry import did_you_mean
from icda.serving.head import HeadModel, ShortcutReader

AUTO = "auto"
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
    treatment: Treatment | None = None  # None where the user named the method
    shortcut: ShortcutReader | None = None


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


def fit_named(
    method: str,
    X: np.ndarray,
    y: np.ndarray,
    seed: int,
    groups: np.ndarray | None = None,
    assessment: Assessment | None = None,
) -> Head:
    """Audit, treat and fit (`auto`), or fit the named loss to standardised features.

    With `groups` nothing has to be guessed: `auto` takes the prior, or the weights, of the groups. An `assessment` of the
    same samples spares the audit.
    """
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    mean, scale = weighted_moments(X, np.ones(len(X), X.dtype))
    moments = torch.from_numpy(mean), torch.from_numpy(scale)
    if method == AUTO:
        robust = RobustClassifier(random_state=seed).fit(X, y, groups=groups, assessment=assessment)
        treatment, shortcut = robust.treatment_, None
        if treatment.name == "shortcut_prior" and robust.audit_ is not None:
            shortcut = shortcut_reader(robust.audit_, *moments, len(robust.classes_), X.dtype)
        elif treatment.name == "group_prior" and any(map(is_missing, np.ravel(np.asarray(groups)).tolist())):
            targets = torch.from_numpy(np.searchsorted(robust.classes_, y))
            shortcut = group_reader(treatment, torch.from_numpy((X - mean) / scale), targets, *moments)
        return Head(robust.classes_, robust.coef_, robust.intercept_, robust.C_, treatment, shortcut)
    classes, codes = np.unique(y, return_inverse=True)
    features, targets = torch.from_numpy((X - mean) / scale), torch.from_numpy(codes)
    settings = LossSettings(method)  # type: ignore[arg-type]
    problem = Problem.plain(features, targets, len(classes), DECAY * X.shape[1])
    # The decay is chosen as for the recommended head: what is compared is the loss.
    drawn = torch.from_numpy(draw_rows(len(X), SAMPLES, seed))
    decay = chosen_decay(problem.rows(drawn), settings, targets[drawn], len(X), seed)
    head = fit_head(replace(problem, decay=decay), settings, 200, 1e-4).unscaled(*moments)
    return Head(classes, head.weight.numpy(), head.bias.numpy(), 1 / (decay * len(X)))


def fit_rows(rows: BlockRows, method: str) -> tuple[Head, Assessment | None, LinearHead]:
    """`fit_named` for rows in blocks: the same steps, and the same head to the tolerance of the solver."""
    scaling, dtype = rows.reading.scaling, np.float64 if rows.dtype == torch.float64 else np.float32
    assert scaling is not None
    settings, smoothing = LossSettings("la" if method == AUTO else method), 0.0  # type: ignore[arg-type]
    assessment = shortcut = None
    if method == AUTO and rows.reading.groups is None:
        assessment = assess(rows)
        rows.say(assessment.summary)
        has_shortcut, sample = assessment.treatment.name == "shortcut_prior", assessment.sample
        grouping = Grouping(assessment.treatment, attribute_reader(assessment) if has_shortcut else None)
        if has_shortcut:
            shortcut = shortcut_reader(assessment, scaling.mean, scaling.scale, rows.num_classes, np.dtype(dtype))
    elif method == AUTO:
        grouping, sample, smoothing = find_groups(rows), draw_sample(rows), GROUP_SMOOTHING
    else:
        grouping, sample = Grouping(Treatment("logit_adjustment", [])), draw_sample(rows)
    problem, treatment = treated_problem(rows, grouping, sample, settings, smoothing)
    head = fit_head(problem, settings, 200, 1e-4)
    plain = head.unscaled(scaling.mean, scaling.scale)
    arrays = plain.weight.numpy().astype(dtype), plain.bias.numpy().astype(dtype)
    done, C = treatment if method == AUTO else None, 1 / (problem.decay * rows.shape[0])
    return Head(rows.reading.classes, *arrays, C, done, shortcut), assessment, head


def done_in_words(method: str, head: Head) -> str:
    """What was done; the audit's expectation is left out, for the trial says what came of it."""
    return SENTENCES[method] if head.treatment is None else head.treatment.description


def group_reader(
    treatment: Treatment, features: torch.Tensor, targets: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
) -> ShortcutReader:
    """A head that reads off new samples the group that was named for some, and the class that each group points to."""
    assert treatment.attributes is not None
    values, count = treatment.attributes, int(targets.max()) + 1
    head = fit_reader(features, targets, values, count, DECAY * features.shape[1])
    towards = joint_counts(values, targets, len(head.bias), count).argmax(1)
    plain = head.unscaled(mean, scale)
    return ShortcutReader(plain.weight.numpy(), plain.bias.numpy(), towards.numpy())


def shortcut_reader(
    assessment: Assessment, mean: torch.Tensor, scale: torch.Tensor, num_classes: int, dtype: np.dtype
) -> ShortcutReader:
    """A head that reads what the shortcut says off new samples, for features as they come."""
    reader = attribute_reader(assessment)
    head = LinearHead(reader.weight.double(), reader.bias.double()).unscaled(mean, scale)
    towards = joint_counts(reader.values, assessment.sample.targets, reader.number, num_classes).argmax(1)
    return ShortcutReader(head.weight.numpy().astype(dtype), head.bias.numpy().astype(dtype), towards.numpy())


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
    head, assessment, fitted = fit_rows(rows, name)
    facts: dict[str, object] = {"icda": __version__, "method": name, "done": done_in_words(name, head), "C": head.C}
    if assessment is not None:
        facts["found"] = assessment.summary
    if head.treatment is not None:
        facts["treatment"] = head.treatment.as_dict()
    facts |= {
        "notes": notes,
        "samples": rows.shape[0],
        "class_counts": dict(zip(map(str, head.classes), rows.counts.tolist(), strict=True)),
        "iterations": fitted.iterations,
        "converged": fitted.converged,
        "passes": rows.passes,
    }
    label = None if path.suffix.lower() == ".npy" else wanted.labels
    return HeadModel(
        head.classes, head.coef, head.intercept, replace(blocks[0].reads, label=label), head.shortcut, facts
    )
