"""What heads reach on the unbiased test part: the classifier that audits, what it is compared with, and an oracle."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from icda.auditing.assessment import assess
from icda.auditing.evidence import make_sketch
from icda.auditing.inputs import DECAY
from icda.auditing.treatment import shortcut_answers, with_prior
from icda.cross_fit.pairs import DECAY as PAIR_DECAY
from icda.estimators.robust import weighted_moments
from icda.linear.balance import rebalance, reweigh
from icda.linear.cross_fit import cross_fitted_logits
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.pseudo_groups import contrast_groups
from icda.linear.solver import fit_head
from icda_bench.studies.verdicts.cases import Case

FEWEST = 10  # test samples below which a group's accuracy is not asked for
JTT_WEIGHT = 5.0  # how often a sample counts that a head which has not seen it gets wrong
MAX_ITER, TOL = 100, 1e-3


def fit_rows(case: Case, names: tuple[str, ...] = ()) -> dict[str, object]:
    """Accuracy and worst group of every method in one row, and what the audit said and did."""
    mean, scale = weighted_moments(case.features, np.ones(len(case.targets)))
    features, test = (
        torch.from_numpy(((part - mean) / scale).astype(np.float32)) for part in (case.features, case.test_features)
    )
    classes, codes = np.unique(case.targets, return_inverse=True)
    targets = torch.from_numpy(codes)
    ones = features.new_ones(len(targets))
    counts = torch.bincount(targets).double()
    problem = Problem(features, targets, len(classes), ones, ones, counts, DECAY * features.shape[1])
    row: dict[str, object] = {}
    for name, prepare in METHODS.items():
        if names and name not in names:
            continue
        start = time.process_time()
        prepared, loss = prepare(problem, case, row)
        head = fit_head(prepared, LossSettings(loss), MAX_ITER, TOL)  # type: ignore[arg-type]
        predicted = classes[head.logits(test).argmax(1).numpy()]
        accuracy, worst = judge(predicted, case.test_targets, case.test_groups)
        row[f"{name}_accuracy"], row[f"{name}_worst"] = round(accuracy, 4), round(worst, 4)
        row[f"{name}_seconds"] = round(time.process_time() - start, 2)
    return row


def judge(predicted: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Mean accuracy of the groups, and that of the worst; groups of few samples are left out.

    >>> judge(np.array([0] * 20), np.array([0] * 10 + [1] * 10), np.array([0] * 10 + [1] * 10))
    (0.5, 0.0)
    """
    right = predicted == targets
    shares = [right[groups == group].mean() for group in np.unique(groups) if (groups == group).sum() >= FEWEST]
    if not shares:
        return float(right.mean()), float(right.mean())
    return float(np.mean(shares)), float(np.min(shares))


Prepared = tuple[Problem, str]


def _ce(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    return problem, "ce"


def _logistic(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    # What scikit-learn's LogisticRegression does by default: C = 1.
    return replace(problem, decay=1 / len(problem.targets)), "ce"


def _la(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    return problem, "la"


def _icda(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    return problem, "icda"


def _oracle(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    return with_prior(problem, torch.from_numpy(case.attributes)), "la"


def _contrast(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    # Guessed in the sketch: thirty heads on all features of thousands of samples would take most of the time.
    sketch = replace(problem, features=make_sketch(_in_memory(problem)).features, decay=PAIR_DECAY)
    return rebalance(problem, contrast_groups(sketch, repeats=1).attributes, "prior"), "la"


def _jtt(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    logits = cross_fitted_logits(problem, LossSettings("ce"), problem.targets, max_iter=MAX_ITER)
    wrong = logits.argmax(1) != problem.targets
    return reweigh(problem, torch.where(wrong, JTT_WEIGHT, 1.0)), "ce"


def _xrm(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    answers = shortcut_answers(make_sketch(_in_memory(problem)).features, problem.targets, problem.num_classes)
    return rebalance(problem, (answers != problem.targets).long(), "weights"), "ce"


def _twins_always(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    answers = shortcut_answers(make_sketch(_in_memory(problem)).features, problem.targets, problem.num_classes)
    return with_prior(problem, answers), "la"


def _robust(problem: Problem, case: Case, row: dict[str, object]) -> Prepared:
    found = assess(_in_memory(problem), problem.targets, problem.num_classes)
    for kind, verdict in found.verdicts.items():
        row[kind], row[f"{kind}_confidence"] = verdict.answer, verdict.confidence
    row["treatment"] = found.treatment.name
    effect = found.treatment.effect
    if effect is not None:
        row["suspected_before"], row["suspected_after"] = effect.suspected_before, effect.suspected_after
    else:
        row["suspected_before"], row["suspected_after"] = "", ""
    return found.treatment.prepared(problem, LossSettings("la")), "la"


def _in_memory(problem: Problem) -> Tensor:
    assert isinstance(problem.features, Tensor)
    return problem.features


METHODS: dict[str, Callable[[Problem, Case, dict[str, object]], Prepared]] = {
    "robust": _robust,
    "ce": _ce,
    "logistic": _logistic,
    "la": _la,
    "icda": _icda,
    "oracle": _oracle,
    "contrast": _contrast,
    "jtt": _jtt,
    "xrm": _xrm,
    "twins_always": _twins_always,
}
