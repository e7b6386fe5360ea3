"""Groups guessed without group labels: where a biased head and a robust one disagree (`icda.heads.folds`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icda.heads.blocks import BlockRows
from icda.heads.folds import find_ties
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.rows import Rows
from icda.heads.solver import LinearHead, fit_head


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


def contrast_groups(problem: Problem, *, rounds: int = 4, repeats: int = 3, seed: int = 0) -> PseudoGroups:
    """Guess groups in `rounds`; without any, the samples that a class-balanced head gets wrong are a group.

    Every sample counts the same in the guess, whatever its weight.
    """
    targets = problem.targets
    rows = BlockRows.of_memory(problem.features, targets, problem.num_classes, seed=seed)
    found = find_ties(rows, problem.decay, rounds, repeats)
    rivals = found.logits.scatter(1, targets[:, None], float("-inf")).argmax(1)
    return PseudoGroups(found.ties, targets, rivals)


def fit_reader(features: Rows, targets: Tensor, attributes: Tensor, num_classes: int, decay: float) -> LinearHead:
    """A head that reads an attribute (N,) of 0 .. K-1, every pair of class and attribute counting the same.

    Balanced so that it cannot answer with the class: what is left is the attribute.
    """
    number = int(attributes.max()) + 1
    weights = rebalance(Problem.plain(features, targets, num_classes, decay), attributes).weights
    counts = torch.bincount(attributes, minlength=number).double()
    reader = Problem.plain(features, attributes, number, decay)
    return fit_head(replace(reader, weights=weights, class_counts=counts), LossSettings("ce"))
