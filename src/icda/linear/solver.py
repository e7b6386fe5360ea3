"""A linear head on fixed features, fitted to all samples at once by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from icda.errors import InputError
from icda.linear.descent import Descent, Metric, descend, find_metric
from icda.linear.evaluation import make_objective
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.rows import Rows, row_chunks, times
from icda.linear.threads import threads_for
from icda.statistics.confusion import count_confusions
from icda.strength import Strength, direct_strength

PLAIN_MEMORY = 10  # pairs that L-BFGS remembers, as in scikit-learn
AUGMENTED_MEMORY = 20  # covariances make the problem stiffer: this saves a sixth of the iterations on real embeddings
START_SLACK = 10.0  # the first head only says where samples lie: it need not be more exact than that
ICDA_START = 5  # iterations of it: strengths are read again anyway, while RISDA's confusions need a good head


@dataclass
class LinearHead:
    """Weight (C, A) and bias (C,), and how the fit went."""

    weight: Tensor
    bias: Tensor
    iterations: int = 0
    converged: bool = True
    value: float = field(default=float("nan"))

    @classmethod
    def of(cls, found: Descent, basis: Tensor | None = None) -> LinearHead:
        """Where L-BFGS stopped; with a `basis` (C, R) its rows are coordinates of the classes' rows."""
        parameters = found.parameters if basis is None else basis @ found.parameters
        weight, bias = parameters[:, :-1].contiguous(), parameters[:, -1].contiguous()
        return cls(weight, bias, found.iterations, found.converged, found.value)

    def logits(self, features: Rows) -> Tensor:
        return times(features, self.weight).add_(self.bias)


def fit_head(
    problem: Problem,
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
    with threads_for(problem.features.shape[0] * problem.features.shape[1] * problem.num_classes):
        return _fit(problem, settings, max_iter, tol, rounds, start)


def _fit(
    problem: Problem, settings: LossSettings, max_iter: int, tol: float, rounds: int, start: LinearHead | None
) -> LinearHead:
    metric = None
    if problem.num_classes > 2:
        metric = find_metric(problem.features, problem.decay, problem.num_classes, problem.num_classes)
    if settings.name in ("ce", "la", "isda"):
        return _minimise(problem, settings, start or _zero_head(problem), None, None, max_iter, tol, metric)
    steps = min(max_iter, ICDA_START) if settings.name == "icda" else max_iter
    head = start
    if head is None:
        # ICDA's strengths have several fixed points: where these few steps lead decides which, so they go the plain way.
        way = None if settings.name == "icda" else metric
        zero, slack = _zero_head(problem), START_SLACK * tol
        head = _minimise(problem, LossSettings("la"), zero, None, None, steps, slack, way)
    spent = head.iterations if start is None else 0
    for _ in range(rounds):
        strength = problem.strength or _angles(problem, head) if settings.name == "icda" else None
        relations = _relations(problem, head) if settings.name == "risda" else None
        head = _minimise(problem, settings, head, strength, relations, max_iter, tol, metric)
        spent += head.iterations
        if head.iterations <= 1:  # the strengths no longer move the optimum
            break
    head.iterations = spent
    return head


def check_decay(problem: Problem) -> None:
    """Refuse a decay that the features' own numbers cannot hold: then the loss would be infinite, or an error of torch."""
    most = torch.finfo(problem.features.dtype).max ** 0.5  # it is multiplied by weights
    if not 0 <= problem.decay <= most:
        raise InputError(
            f"a weight decay of {problem.decay:.3g} does not fit {problem.features.dtype}, at most {most:.3g}: choose a "
            "larger C."
        )


def _zero_head(problem: Problem) -> LinearHead:
    shape = (problem.num_classes, problem.features.shape[1])
    dtype = problem.features.dtype
    return LinearHead(torch.zeros(shape, dtype=dtype), torch.zeros(shape[0], dtype=dtype))


def _angles(problem: Problem, head: LinearHead) -> Strength:
    """The paper's strengths of all samples under a head."""
    shape, dtype = (len(problem.targets), problem.num_classes), problem.features.dtype
    strength = Strength(torch.empty(shape, dtype=dtype), torch.empty(shape[0], dtype=dtype))
    for span, block in row_chunks(problem.features):
        strengths = direct_strength(block, problem.targets[span], head.weight)
        strength.per_class[span], strength.per_sample[span] = strengths
    return strength


def _relations(problem: Problem, head: LinearHead) -> Tensor:
    """RISDA's K: the row-normalised confusion matrix of the head on the training data."""
    predictions = head.logits(problem.features).argmax(1)
    counts = count_confusions(predictions, problem.targets, problem.num_classes, problem.weights)
    confusion = counts.to(problem.features.dtype)
    return confusion / confusion.sum(1, keepdim=True).clamp(min=1e-12)


def _minimise(
    problem: Problem,
    settings: LossSettings,
    start: LinearHead,
    strength: Strength | None,
    relations: Tensor | None,
    max_iter: int,
    tol: float,
    metric: Metric | None = None,
) -> LinearHead:
    begin = torch.cat([start.weight, start.bias[:, None]], 1)
    basis, decay = None, problem.decay
    if len(begin) == 2 and torch.equal(begin[0], -begin[1]):
        # The optimum of two classes is two opposite rows, and the way to it too: one row does, at half the cost.
        basis, begin = torch.tensor([[-0.5], [0.5]], dtype=begin.dtype), 2 * begin[1:]
        decay, metric = 0.5 * decay, None
    objective = make_objective(problem, settings, strength, relations, basis)
    found = descend(objective, begin, decay, max_iter, tol, memory_of(settings), metric)
    return LinearHead.of(found, basis)


def memory_of(settings: LossSettings) -> int:
    """How many pairs L-BFGS remembers."""
    return PLAIN_MEMORY if settings.name in ("ce", "la") else AUGMENTED_MEMORY
