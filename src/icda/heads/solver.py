"""A linear head on fixed features, fitted to all samples at once by L-BFGS."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from icda.errors import InputError
from icda.heads.block_problem import BlockProblem
from icda.heads.descent import LEAST_AUGMENTED, LEAST_WORK, METRIC_SHARE, Coordinates, Descent, descend
from icda.heads.objective import FoldObjective, Objective, from_rows, head_rows, to_rows
from icda.heads.problem import AUGMENTED, LossName, LossSettings, Problem
from icda.heads.rows import Rows, times
from icda.heads.threads import threads_for

PLAIN_MEMORY = 10  # pairs that L-BFGS remembers, as in scikit-learn
AUGMENTED_MEMORY = 20  # covariances make the problem stiffer: this saves a sixth of the iterations on real embeddings
START_SLACK = 10.0  # the first head only says where samples lie: it need not be more exact than that
LOOSE = 100.0  # times `tol`: after so much of the way in a metric, strengths and rows are known well enough
STRETCHED = 0.05  # of log C, the loss there from which the metric is stretched: below, what is left to do is to grow
MOST_ROWS = 64  # of all heads together: above, products are as fast one fold after the other, and hold no idle samples
ICDA_START = 5  # iterations of it: strengths are read again anyway, while RISDA's confusions need a good head


@dataclass
class LinearHead:
    """Weight (C, A) and bias (C,), and how the fit went."""

    weight: Tensor
    bias: Tensor
    iterations: int = 0
    converged: bool = True
    value: float = float("nan")

    @classmethod
    def zeros(cls, num_classes: int, width: int, dtype: torch.dtype) -> Self:
        return cls(torch.zeros(num_classes, width, dtype=dtype), torch.zeros(num_classes, dtype=dtype))

    @classmethod
    def of(cls, found: Descent, num_classes: int) -> list[Self]:
        """The heads whose parameters L-BFGS found."""
        heads = from_rows(found.parameters, num_classes)
        how = found.iterations, found.converged, found.value if len(heads) == 1 else float("nan")
        return [cls(head[:, :-1].contiguous(), head[:, -1].contiguous(), *how) for head in heads]

    @property
    def parameters(self) -> Tensor:
        return torch.cat([self.weight, self.bias[:, None]], 1)

    def logits(self, features: Rows) -> Tensor:
        return times(features, self.weight).add_(self.bias)

    def unscaled(self, mean: Tensor, scale: Tensor) -> Self:
        """The head for features as they come, where this one was fitted to (features - mean) / scale."""
        weight = self.weight.double() / scale.double()
        bias = self.bias.double() - weight @ mean.double()
        return replace(self, weight=weight.to(self.weight), bias=bias.to(self.bias))


Fittable = Problem | BlockProblem  # rows in memory or on disk, or in blocks


def fit_head(
    problem: Fittable,
    settings: LossSettings,
    max_iter: int = 100,
    tol: float = 1e-4,
    rounds: int = 3,
    start: LinearHead | None = None,
) -> LinearHead:
    """Minimise the loss; strengths and RISDA's confusions are read off the head again in each of `rounds`.

    Within a round they are constants, as the paper has them, so that L-BFGS sees one smooth function. The first round
    starts near the logit-adjusted head, whose angles mean something; `tol` bounds the largest entry of the gradient.
    """
    check_decay(problem)
    with threads_for(problem.products):
        objective, metric = problem.objective(settings), find_metric(problem, settings.name)
        head = start or LinearHead.zeros(problem.num_classes, problem.features.shape[1], problem.features.dtype)
        spent, name = 0, settings.name
        if start is None and name in ("icda", "risda"):
            # ICDA's strengths have several fixed points: where these few steps lead decides which, so they go the plain
            # way. RISDA's confusions need a good head.
            steps, way = (min(max_iter, ICDA_START), None) if name == "icda" else (max_iter, metric)
            first = LossSettings("la")
            (head,) = minimise(problem, problem.objective(first), first, [head], steps, START_SLACK * tol, way)
            spent = head.iterations
        rounds = rounds if name in ("icda", "risda") else 1
        for number in range(rounds):
            _read_head(problem, objective, name, head)
            if number == 0 and metric is not None and name in AUGMENTED:
                (head,) = minimise(problem, objective, settings, [head], max_iter, LOOSE * tol, metric)
                spent += head.iterations
                if head.value > STRETCHED * math.log(problem.num_classes):
                    metric = metric.stretched(head.parameters, settings.lam)
                if name == "icda" and rounds > 1:
                    continue
            steps = max_iter if rounds > 1 else max(1, max_iter - spent)
            (head,) = minimise(problem, objective, settings, [head], steps, tol, metric)
            spent += head.iterations
            if head.iterations <= 1:  # the strengths no longer move the optimum
                break
        head.iterations = spent
        return head


def _read_head(problem: Fittable, objective: Any, name: LossName, head: LinearHead) -> None:
    """Give the objective ICDA's strengths, or RISDA's K: the row-normalised confusions of the head on the samples."""
    if name == "icda":
        objective.follow(head)
    elif name == "risda":
        counts = problem.confusions(head).to(head.weight)
        objective.relations = counts / counts.sum(1, keepdim=True).clamp(min=1e-12)


def fit_folds(
    problem: Problem,
    settings: LossSettings,
    inside: Tensor,
    max_iter: int = 100,
    tol: float = 1e-4,
    starts: list[LinearHead] | None = None,
    *,
    together: bool = True,
) -> list[LinearHead]:
    """One head for each row of `inside` (K, N), fitted to the samples in it; `starts` are heads of the same folds.

    If `together`, CE and LA of few classes are fitted side by side: the folds' problems are nearly the same problem, so
    that one run of L-BFGS takes hardly more iterations than the slowest alone. No head starts from another fold's: one that
    began where a sample was seen, and stopped at a tolerance, would not be one that has not seen it.
    """
    count, classes = len(inside), problem.num_classes
    if not together or settings.name not in ("ce", "la") or count * classes > MOST_ROWS:
        first = [None] * count if starts is None else starts
        return [
            fit_head(problem.rows(mask), settings, max_iter, tol, start=start)
            for mask, start in zip(inside, first, strict=True)
        ]
    check_decay(problem)
    if starts is None:
        starts = [LinearHead.zeros(classes, problem.features.shape[1], problem.features.dtype)] * count
    with threads_for(count * problem.products):
        return minimise(problem, FoldObjective(problem, settings, inside), settings, starts, max_iter, tol)


def check_decay(problem: Fittable) -> None:
    """Refuse a decay that the features' own numbers cannot hold: then the loss would be infinite, or an error of torch."""
    most = torch.finfo(problem.features.dtype).max ** 0.5  # it is multiplied by weights
    if not 0 <= problem.decay <= most:
        raise InputError(
            f"a weight decay of {problem.decay:.3g} does not fit {problem.features.dtype}, at most {most:.3g}: choose a "
            "larger C."
        )


def find_metric(problem: Fittable, name: LossName = "ce") -> Coordinates | None:
    """Coordinates for a fit, or None where looking for them costs more than it saves."""
    (count, width), rows = problem.features.shape, head_rows(problem.num_classes)
    least = LEAST_AUGMENTED if name in AUGMENTED else LEAST_WORK
    if rows == 1 or count * width * rows < least or width**2 > METRIC_SHARE * count * rows:
        return None
    return Coordinates.of(problem.sampled_rows(), problem.decay, 1 / problem.num_classes)


def minimise(
    problem: Fittable,
    objective: Objective,
    settings: LossSettings,
    starts: list[LinearHead],
    max_iter: int,
    tol: float,
    metric: Coordinates | None = None,
) -> list[LinearHead]:
    """The heads that L-BFGS finds from `starts`, whose losses the objective adds up."""
    decay = 0.5 * problem.decay if problem.num_classes == 2 else problem.decay  # of two opposite rows, one is looked at
    memory = PLAIN_MEMORY if settings.name in ("ce", "la") else AUGMENTED_MEMORY
    begin = to_rows(torch.stack([head.parameters for head in starts]))
    found = descend(objective, begin, decay, max_iter, tol, memory, metric)
    return LinearHead.of(found, problem.num_classes)
