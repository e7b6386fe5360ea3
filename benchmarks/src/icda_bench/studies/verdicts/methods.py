"""What heads reach on the unbiased test part: the classifier that audits, what it is compared with, and an oracle."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from icda.auditing.evidence import make_sketch
from icda.auditing.inputs import DECAY
from icda.auditing.plan import plan_by_audit, treated_problem
from icda.auditing.treatment import shortcut_answers
from icda.cross_fit.pairs import DECAY as PAIR_DECAY
from icda.heads.blocks import BlockRows, Scaling
from icda.heads.cross_fit import cross_fitted_logits
from icda.heads.folds import contrast_groups
from icda.heads.problem import LossName, LossSettings, Problem, rebalance, reweigh, with_prior
from icda.heads.solver import Fittable, fit_head
from icda_bench.studies.verdicts.cases import Case

FEWEST = 10  # test samples below which a group's accuracy is not asked for
JTT_WEIGHT = 5.0  # how often a sample counts that a head which has not seen it gets wrong
MAX_ITER, TOL = 100, 1e-3


class CaseFit:
    """A case ready to be fitted in any way, and judged on the unbiased test part."""

    def __init__(self, case: Case) -> None:
        self.case = case
        scaling = Scaling.of_rows(case.features)
        self.features, self.test = (
            scaling.apply(torch.from_numpy(part)).float() for part in (case.features, case.test_features)
        )
        self.classes, codes = np.unique(case.targets, return_inverse=True)
        self.targets = torch.from_numpy(codes)
        decay = DECAY * self.features.shape[1]
        self.problem = Problem.plain(self.features, self.targets, len(self.classes), decay)

    def judged(self, problem: Fittable, loss: LossName = "la") -> dict[str, float]:
        head = fit_head(problem, LossSettings(loss), MAX_ITER, TOL)
        predicted = self.classes[head.logits(self.test).argmax(1).numpy()]
        accuracy, worst = judge(predicted, self.case.test_targets, self.case.test_groups)
        return {"accuracy": round(accuracy, 4), "worst": round(worst, 4)}


def fit_row(case: Case) -> dict[str, object]:
    """Accuracy and worst group of every method in one row, and what the audit said and did."""
    fit, row = CaseFit(case), dict[str, object]()
    for name, prepare in METHODS.items():
        start = time.process_time()
        figures = fit.judged(*prepare(fit.problem, case, row))
        row |= {f"{name}_{figure}": value for figure, value in figures.items()}
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


Prepared = tuple[Fittable, LossName]


def _sketch(problem: Problem) -> Tensor:
    """Heads that guess are fitted in it: thirty on all features of thousands of samples would take most of the time."""
    assert isinstance(problem.features, Tensor)
    return make_sketch(problem.features).features


def _contrast(problem: Problem) -> Prepared:
    sketch = replace(problem, features=_sketch(problem), decay=PAIR_DECAY)
    return rebalance(problem, contrast_groups(sketch, repeats=1).attributes, "prior"), "la"


def _jtt(problem: Problem) -> Prepared:
    logits = cross_fitted_logits(problem, LossSettings("ce"), problem.targets, max_iter=MAX_ITER)
    return reweigh(problem, torch.where(logits.argmax(1) != problem.targets, JTT_WEIGHT, 1.0)), "ce"


def _shortcut_answers(problem: Problem) -> Tensor:
    return shortcut_answers(_sketch(problem), problem.targets, problem.num_classes)


def _robust(problem: Problem, row: dict[str, object]) -> Prepared:
    assert isinstance(problem.features, Tensor)
    rows = BlockRows.of_memory(problem.features, problem.targets, problem.num_classes)
    plan = plan_by_audit(rows)
    assert plan.assessment is not None
    for kind, verdict in plan.assessment.verdicts.items():
        row[kind], row[f"{kind}_confidence"] = verdict.answer, verdict.confidence
    effect = plan.treatment.effect
    row["treatment"] = plan.treatment.name
    row["suspected_before"] = "" if effect is None else effect.suspected_before
    row["suspected_after"] = "" if effect is None else effect.suspected_after
    return treated_problem(rows, plan, LossSettings("la"))[0], "la"


# What each head is fitted to, and with which loss; the audit also writes what it said into the row.
METHODS: dict[str, Callable[[Problem, Case, dict[str, object]], Prepared]] = {
    "robust": lambda problem, case, row: _robust(problem, row),
    "ce": lambda problem, case, row: (problem, "ce"),
    "logistic": lambda problem, case, row: (
        replace(problem, decay=1 / len(problem.targets)),
        "ce",
    ),  # scikit-learn's C = 1
    "la": lambda problem, case, row: (problem, "la"),
    "icda": lambda problem, case, row: (problem, "icda"),
    "oracle": lambda problem, case, row: (with_prior(problem, torch.from_numpy(case.attributes)), "la"),
    "contrast": lambda problem, case, row: _contrast(problem),
    "jtt": lambda problem, case, row: _jtt(problem),
    "xrm": lambda problem, case, row: (
        rebalance(problem, (_shortcut_answers(problem) != problem.targets).long(), "weights"),
        "ce",
    ),
    "twins_always": lambda problem, case, row: (with_prior(problem, _shortcut_answers(problem)), "la"),
}
