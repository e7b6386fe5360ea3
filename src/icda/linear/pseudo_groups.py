"""Groups guessed without group labels: where a biased head and a robust one disagree.

Ours, not the paper's. A class-balanced head that has not seen a sample relies on the shortcut; its logit depends on
the class and on the shortcut at once. A head trained to balance the groups guessed so far depends more on the class. What
is left of the first after part of the second is taken away depends on the shortcut: it sorts each class into those it
helps and those it hurts. Guess and robust head improve each other over a few rounds; no group label is used anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icda.linear.balance import rebalance
from icda.linear.cross_fit import cross_fitted_logits
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.solver import fit_head


@dataclass(frozen=True)
class PseudoGroups:
    """`attributes` (N,): the class the shortcut predicts, a sample's own or another; `tie` (N,): the score behind it.

    The larger the tie, the more the shortcut points to `rivals` (N,), the likeliest wrong class, and not to the label.
    """

    tie: Tensor
    targets: Tensor
    rivals: Tensor

    @property
    def hurt(self) -> Tensor:
        """Whether the shortcut contradicts a sample's label."""
        return self.tie > 0

    @property
    def attributes(self) -> Tensor:
        return torch.where(self.hurt, self.rivals, self.targets)

    @property
    def groups(self) -> Tensor:
        """2 * class + (the shortcut contradicts it)."""
        return 2 * self.targets + self.hurt.long()


def contrast_groups(
    problem: Problem,
    *,
    rounds: int = 4,
    share: float = 0.5,
    folds: int = 5,
    repeats: int = 3,
    robust_decay: float = 10.0,
    seed: int = 0,
    biased_logits: Tensor | None = None,
) -> PseudoGroups:
    """Guess groups in `rounds`: tie = margin of the best wrong class under the biased head - share * that under the robust.

    Without rounds the tie is the biased head's margin: the samples it gets wrong are a group. `robust_decay` multiplies
    the weight decay of the robust heads, which have few samples in the rarest group. `biased_logits` (N, C) are those of
    class-balanced heads with the same folds, repeats and seed, where they are known already.
    """
    targets = problem.targets
    same = torch.zeros_like(targets)
    if biased_logits is None:
        biased_logits = _cross_fit(rebalance(problem, same), targets, folds, repeats, seed)
    biased, rivals = _wrong_margin(biased_logits, targets)
    guess = PseudoGroups(biased, targets, rivals)
    robust_problem = replace(problem, decay=problem.decay * robust_decay)
    for _ in range(rounds):
        balanced = rebalance(robust_problem, guess.hurt.long())
        robust, _ = _wrong_margin(_cross_fit(balanced, guess.groups, folds, repeats, seed), targets)
        guess = PseudoGroups(_unit(biased) - share * _unit(robust), targets, rivals)
    return guess


def guess_attributes(features: Tensor, metadata: Problem, attributes: Tensor, max_iter: int = 100) -> Tensor:
    """What a head that reads `attributes` off metadata, each (class, attribute) balanced, says of other samples."""
    number = int(attributes.max()) + 1
    weights = rebalance(metadata, attributes).weights
    counts = torch.bincount(attributes, minlength=number).double()
    reader = replace(metadata, targets=attributes, num_classes=number, weights=weights, class_counts=counts)
    return fit_head(reader, LossSettings("ce"), max_iter).logits(features).argmax(1)


def _unit(values: Tensor) -> Tensor:
    return values / values.std().clamp(min=1e-12)


def _cross_fit(problem: Problem, strata: Tensor, folds: int, repeats: int, seed: int) -> Tensor:
    return cross_fitted_logits(problem, LossSettings("ce"), strata, folds, repeats, seed, together=True)


def _wrong_margin(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """How far the best wrong class is ahead of the target, and which class that is."""
    own = logits.gather(1, targets[:, None])[:, 0]
    rival = logits.scatter(1, targets[:, None], float("-inf")).max(1)
    return rival.values - own, rival.indices
