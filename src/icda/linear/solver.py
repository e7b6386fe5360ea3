"""A linear head on fixed features, fitted to all samples at once by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from icda.linear.objective import LossSettings, adjustment, weighted_cross_entropy
from icda.statistics.grouping import LabelGroups
from icda.strength import Strength, direct_strength


@dataclass
class LinearHead:
    """Weight (C, A) and bias (C,), and how the fit went."""

    weight: Tensor
    bias: Tensor
    iterations: int = 0
    converged: bool = True
    value: float = field(default=float("nan"))

    def logits(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)


@dataclass(frozen=True)
class Problem:
    """Everything about a fit that does not change from iteration to iteration."""

    features: Tensor
    targets: Tensor
    num_classes: int
    weights: Tensor  # how much each sample's loss counts
    statistics_weights: Tensor  # how much each sample counts in class means and covariances
    class_counts: Tensor
    decay: float  # half of it times |W|^2 is added to the mean loss
    strength: Strength | None = None  # fixed strengths; None reads them off the head's angles


def fit_head(
    problem: Problem,
    settings: LossSettings,
    max_iter: int = 100,
    tol: float = 1e-4,
    rounds: int = 3,
    start: LinearHead | None = None,
) -> LinearHead:
    """Minimise the loss; strengths and RISDA's confusions are read off the head anew in each of `rounds`.

    Within a round they are constants, as the paper has them, so that L-BFGS sees one smooth function. The first round
    starts from the logit-adjusted head, whose angles mean something; `tol` bounds the largest entry of the gradient.
    """
    if settings.name in ("ce", "la", "isda"):
        return _minimise(problem, settings, start or _zero_head(problem), None, None, max_iter, tol)
    head = start or _minimise(problem, LossSettings("la"), _zero_head(problem), None, None, max_iter, tol)
    spent = head.iterations if start is None else 0
    for _ in range(rounds):
        strength = problem.strength or direct_strength(problem.features, problem.targets, head.weight)
        head = _minimise(problem, settings, head, strength, _relations(problem, head), max_iter, tol)
        spent += head.iterations
        if head.iterations <= 1:  # the strengths no longer move the optimum
            break
    head.iterations = spent
    return head


def _zero_head(problem: Problem) -> LinearHead:
    shape = (problem.num_classes, problem.features.shape[1])
    return LinearHead(problem.features.new_zeros(shape), problem.features.new_zeros(shape[0]))


def _relations(problem: Problem, head: LinearHead) -> Tensor:
    """RISDA's K: the row-normalised confusion matrix of the head on the training data."""
    pairs = problem.targets * problem.num_classes + head.logits(problem.features).argmax(1)
    counts = torch.bincount(pairs, problem.weights, minlength=problem.num_classes**2)
    confusion = counts.view(problem.num_classes, -1).to(problem.features)
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
    groups = LabelGroups.of(problem.targets)
    features, shape = problem.features, start.weight.shape

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = torch.from_numpy(flat).to(features).view(shape[0], shape[1] + 1)
        weight, bias = head[:, :-1], head[:, -1]
        plain = features @ weight.T
        plain.requires_grad_()
        with torch.enable_grad():
            phi = adjustment(
                settings,
                plain,
                problem.targets,
                groups,
                problem.class_counts,
                strength,
                problem.statistics_weights,
                relations,
            )
            free = bias.clone().requires_grad_()
            adjusted = plain + free if phi is None else plain + free + phi
            loss = weighted_cross_entropy(adjusted, problem.targets, problem.weights)
        to_logits, to_bias = torch.autograd.grad(loss, (plain, free))
        to_weight = to_logits.T @ features + problem.decay * weight
        value = float(loss.detach()) + 0.5 * problem.decay * float(weight.square().sum())
        return value, torch.cat([to_weight, to_bias[:, None]], 1).flatten().double().numpy()

    flat = torch.cat([start.weight, start.bias[:, None]], 1).flatten().double().numpy()
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 64 * float(torch.finfo(features.dtype).eps)}
    found = minimize(evaluate, flat, jac=True, method="L-BFGS-B", options=options)
    solution = torch.from_numpy(found.x).to(features).view(shape[0], shape[1] + 1)
    converged = found.nit < max_iter
    return LinearHead(solution[:, :-1].contiguous(), solution[:, -1].contiguous(), found.nit, converged, found.fun)
