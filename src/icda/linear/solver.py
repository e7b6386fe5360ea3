"""A linear head on fixed features, fitted to all samples at once by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from icda.errors import InputError, OperationError
from icda.linear.evaluation import make_objective
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.rows import Rows, row_chunks, times
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
    if settings.name in ("ce", "la", "isda"):
        return _minimise(problem, settings, start or _zero_head(problem), None, None, max_iter, tol)
    steps = min(max_iter, ICDA_START) if settings.name == "icda" else max_iter
    head = start or _minimise(problem, LossSettings("la"), _zero_head(problem), None, None, steps, START_SLACK * tol)
    spent = head.iterations if start is None else 0
    for _ in range(rounds):
        strength = problem.strength or _angles(problem, head) if settings.name == "icda" else None
        relations = _relations(problem, head) if settings.name == "risda" else None
        head = _minimise(problem, settings, head, strength, relations, max_iter, tol)
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
) -> LinearHead:
    dtype, width = problem.features.dtype, problem.features.shape[1]
    begin = torch.cat([start.weight, start.bias[:, None]], 1)
    basis = None
    if len(begin) == 2 and torch.equal(begin[0], -begin[1]):
        # The optimum of two classes is two opposite rows, and the way to it too: one row does, at half the cost.
        basis, begin = torch.tensor([[-0.5], [0.5]], dtype=dtype), 2 * begin[1:]
    decay = problem.decay * (1.0 if basis is None else 0.5)
    objective = make_objective(problem, settings, strength, relations, basis)

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = torch.from_numpy(flat).to(dtype).view(-1, width + 1)
        weight = head[:, :-1].contiguous()
        slope = objective(weight, head[:, -1])
        value = slope.value + 0.5 * decay * float(weight.square().sum(dtype=torch.float64))
        to_weight = slope.to_weight.add_(weight, alpha=decay)
        return value, torch.cat([to_weight, slope.to_bias[:, None]], 1).flatten().double().numpy()

    memory = PLAIN_MEMORY if settings.name in ("ce", "la") else AUGMENTED_MEMORY
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 0.1 * float(torch.finfo(dtype).eps), "maxcor": memory}
    solution = minimize(evaluate, begin.flatten().double().numpy(), jac=True, method="L-BFGS-B", options=options)
    parameters = torch.from_numpy(solution.x).to(dtype).view(-1, width + 1)
    if basis is not None:
        parameters = basis @ parameters
    _check_finite(solution.fun)
    converged = solution.nit < max_iter
    return LinearHead(
        parameters[:, :-1].contiguous(), parameters[:, -1].contiguous(), solution.nit, converged, solution.fun
    )


def _check_finite(value: float) -> None:
    if not np.isfinite(value):
        raise OperationError(
            "the fit has become NaN or infinite: look for features of extreme size (scale them, as StandardScaler does) "
            "and for priors or weights that are not finite."
        )
