"""Heads of several folds fitted side by side: the features are read once per iteration, however many folds there are.

The folds' problems are nearly the same problem, so that one run of L-BFGS over all heads takes hardly more iterations than
the slowest of them alone. None starts from another's head: a head that began at one which had seen a sample, and stopped
at a tolerance, would not be one that has not seen it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.linear.descent import descend
from icda.linear.evaluation import Slope, constants_of
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.rows import row_chunks
from icda.linear.solver import LinearHead, check_decay, fit_head, memory_of
from icda.linear.threads import threads_for

MOST_ROWS = 64  # of all heads together: above, products are as fast one fold after the other, and hold no idle samples


def fit_folds(
    problem: Problem,
    settings: LossSettings,
    inside: Tensor,
    max_iter: int = 100,
    tol: float = 1e-4,
    starts: Sequence[LinearHead] | None = None,
) -> list[LinearHead]:
    """A head for each mask of `inside` (K, N), fitted to the samples in it; `starts` are heads of the same folds.

    The optimum and the bound of the gradient are those of `fit_head` on `problem.rows(mask)`.
    """
    folds, classes = len(inside), problem.num_classes
    if settings.name not in ("ce", "la") or folds * classes > MOST_ROWS:
        each: Sequence[LinearHead | None] = starts or [None] * folds
        return [
            fit_head(problem.rows(mask), settings, max_iter, tol, start=start)
            for mask, start in zip(inside, each, strict=True)
        ]
    check_decay(problem)
    # Two classes have opposite rows: one does, as in `fit_head`.
    basis = torch.tensor([[-0.5], [0.5]], dtype=problem.features.dtype) if classes == 2 else None
    rows = classes if basis is None else 1
    begin = torch.zeros(folds * rows, problem.features.shape[1] + 1, dtype=problem.features.dtype)
    if starts is not None:
        whole = torch.stack([torch.cat([head.weight, head.bias[:, None]], 1) for head in starts])
        begin = (whole if basis is None else whole[:, 1:] - whole[:, :1]).flatten(0, 1)
    decay = problem.decay * (1.0 if basis is None else 0.5)
    with threads_for(len(begin) * problem.features.shape[0] * problem.features.shape[1]):
        objective = StackedObjective(problem, settings, inside)
        found = descend(objective, begin, decay, max_iter, tol, memory_of(settings))
    parts = found.parameters.view(folds, rows, -1)
    return [LinearHead.of(found._replace(parameters=part, value=float("nan")), basis) for part in parts]


class StackedObjective:
    """The sum of the folds' losses as a function of all heads' rows: C for each fold, or one for two classes."""

    def __init__(self, problem: Problem, settings: LossSettings, inside: Tensor) -> None:
        self.features, self.targets, self.classes = problem.features, problem.targets, problem.num_classes
        weights = problem.weights * inside
        self.mass = weights / weights.sum(1, keepdim=True)  # (K, N)
        constants = [constants_of(problem.rows_but_features(mask), settings)[0] for mask in inside]
        self.constant = torch.stack(constants)  # (K, C)
        # What differs between samples is added sample by sample, the rest is among the constants.
        self.per_sample = None if problem.log_prior is None else problem.added

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        value = 0.0
        to_weight, to_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        slope_ = two_class_slope_ if self.classes == 2 else class_slope_
        shift = self._shift(bias)[:, None]
        for span, block in row_chunks(self.features):
            # Samples stand in columns: few rows times many columns is the faster product.
            outputs = torch.addmm(shift, weight, block.T)
            self._add_per_sample_(outputs, span)
            value += slope_(outputs, self.targets[span], self.mass[:, span])
            to_weight.addmm_(outputs, block)
            to_bias += outputs.sum(1)
        return Slope(value, to_weight, to_bias)

    def _add_per_sample_(self, outputs: Tensor, span: slice) -> None:
        if self.per_sample is None:
            return
        added = self.per_sample[span].T
        if self.classes == 2:
            outputs += added[1] - added[0]
        else:
            outputs.view(-1, self.classes, outputs.shape[1]).add_(added)

    def _shift(self, bias: Tensor) -> Tensor:
        """What is added to the outputs of all samples."""
        if self.classes == 2:
            return bias + self.constant[:, 1] - self.constant[:, 0]
        return bias + self.constant.flatten()


def two_class_slope_(margins: Tensor, targets: Tensor, mass: Tensor) -> float:
    """Turn margins (K, n) of class 1 into the gradient of the losses with `mass` (K, n), in place; return their sum."""
    signs = (2 * targets - 1).to(margins)
    against = margins.mul_(-signs)
    # A class that a fold has no sample of has a prior of zero there: an infinite loss, of samples that count nothing.
    losses = torch.where(mass > 0, F.softplus(against) * mass, 0.0)
    against.sigmoid_().mul_(mass).mul_(-signs)
    return float(losses.sum(dtype=torch.float64))


def class_slope_(logits: Tensor, targets: Tensor, mass: Tensor) -> float:
    """Turn logits (K C, n) into the gradient of the losses with `mass` (K, n), in place; return their sum."""
    stacked = logits.view(len(mass), -1, logits.shape[1])
    each = targets[None, None].expand(len(mass), 1, -1)
    stacked.sub_(stacked.amax(1, keepdim=True))
    own = stacked.gather(1, each)
    total = stacked.exp_().sum(1, keepdim=True)
    losses = torch.where(mass > 0, (total.log() - own)[:, 0] * mass, 0.0)
    stacked.mul_(mass[:, None] / total).scatter_add_(1, each, -mass[:, None])
    return float(losses.sum(dtype=torch.float64))
