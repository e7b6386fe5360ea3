"""Groups guessed without group labels: where a biased head and a robust one disagree.

Ours, not the paper's. A class-balanced head that has not seen a sample leans on the shortcut; its logit speaks of the
class and of the shortcut at once. A head trained to balance the groups guessed so far speaks more of the class. What is
left of the first after part of the second is taken away speaks of the shortcut: it sorts each class into those it helps
and those it hurts. Guess and robust head improve each other over a few rounds; no group label is used anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icda.linear.cross_fit import cross_fitted_logits
from icda.linear.objective import LossSettings
from icda.linear.solver import Problem


@dataclass(frozen=True)
class PseudoGroups:
    """`groups` (N,) = 2 * class + (tied to another class); `tie` (N,) is the score behind it, larger the more tied."""

    groups: Tensor
    tie: Tensor

    @property
    def hurt(self) -> Tensor:
        """Whether the shortcut speaks against a sample's label."""
        return self.groups % 2 == 1


def balance_weights(labels: Tensor) -> Tensor:
    """Weights that give every label the same mass, mean one.

    >>> balance_weights(torch.tensor([0, 0, 0, 1])).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    counts = torch.bincount(labels).double()
    return len(labels) / ((counts > 0).sum() * counts)[labels]


def contrast_groups(
    problem: Problem,
    *,
    rounds: int = 4,
    share: float = 0.5,
    folds: int = 5,
    repeats: int = 3,
    robust_decay: float = 10.0,
    seed: int = 0,
) -> PseudoGroups:
    """Guess groups in `rounds`: tie = margin of the best wrong class under the biased head - share * that under the robust.

    `robust_decay` multiplies the weight decay of the robust heads, which have few samples in the rarest group.
    """
    targets = problem.targets
    own = balance_weights(targets).to(problem.features)
    biased = _wrong_margin(_cross_fit(problem, own, targets, folds, repeats, seed), targets)
    groups = 2 * targets + (biased > 0).long()
    tie = biased
    for _ in range(rounds):
        robust_problem = replace(problem, decay=problem.decay * robust_decay)
        weights = balance_weights(groups).to(problem.features)
        robust = _wrong_margin(_cross_fit(robust_problem, weights, groups, folds, repeats, seed), targets)
        tie = biased / biased.std() - share * robust / robust.std()
        groups = 2 * targets + (tie > 0).long()
    return PseudoGroups(groups, tie)


def _cross_fit(problem: Problem, weights: Tensor, strata: Tensor, folds: int, repeats: int, seed: int) -> Tensor:
    weighted = replace(problem, weights=problem.weights * weights)
    return cross_fitted_logits(weighted, LossSettings("ce"), strata, folds, repeats, seed)


def _wrong_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """How far the best wrong class is ahead of the target."""
    own = logits.gather(1, targets[:, None])[:, 0]
    rival = logits.scatter(1, targets[:, None], float("-inf")).max(1).values
    return rival - own
