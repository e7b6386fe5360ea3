"""Figures over groups, most often (class, spurious attribute) pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FEWEST = 5  # samples below which a group's share of right answers says nothing


def per_group_accuracy(correct: Tensor, groups: Tensor, num_groups: int) -> list[float | None]:
    """The share of each group that is right; None for a group without samples.

    >>> per_group_accuracy(torch.tensor([True, False, True]), torch.tensor([0, 0, 2]), num_groups=3)
    [0.5, None, 1.0]
    """
    totals = torch.bincount(groups, minlength=num_groups).tolist()
    hits = torch.bincount(groups[correct], minlength=num_groups).tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def per_membership_accuracy(correct: Tensor, memberships: Tensor) -> list[float | None]:
    """The share of each overlapping group that is right; None for a group without samples.

    `memberships` (N, M) says which groups a sample is in: each of several counts it, and none may. This is how WILDS
    judges CivilComments.

    >>> memberships = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> per_membership_accuracy(torch.tensor([True, False, True]), memberships)
    [0.5, 1.0, None]
    """
    totals = memberships.sum(dim=0).tolist()
    hits = memberships[correct].sum(dim=0).tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def train_weighted_accuracy(
    accuracies: Sequence[float | None], train_group_counts: Sequence[int] | Tensor | None
) -> float | None:
    """Group accuracies weighted by each group's share of the training set.

    This is the "average accuracy" of group DRO, WILDS and LISA: the accuracy on a test set mixed like the training set.
    A group absent from the split has no accuracy, so the shares of the others are scaled up to sum to one. None without
    counts, and when no group of the split was trained on.

    >>> train_weighted_accuracy([0.5, 1.0, None], train_group_counts=[30, 10, 60])
    0.625
    """
    if train_group_counts is None:
        return None
    counts = torch.as_tensor(train_group_counts).tolist()
    known = [(accuracy, n) for accuracy, n in zip(accuracies, counts, strict=True) if accuracy is not None]
    total = sum(n for _, n in known)
    return sum(accuracy * n for accuracy, n in known) / total if total else None
