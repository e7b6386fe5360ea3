"""What strengths were given out, by class and by group, over an epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icda.ranks import all_reduce


class StrengthLog(nn.Module):
    """Running means of strengths; a module, so that a run resumed within an epoch reports the whole of it.

    >>> log = StrengthLog(num_classes=2, num_groups=0)
    >>> log.add(torch.tensor([0.25, 0.75, 0.5]), torch.tensor([0, 0, 1]))
    >>> log.take()
    {'strength_mean': 0.5, 'strength_by_class': [0.5, 0.5]}
    """

    by_class: Tensor
    by_group: Tensor

    def __init__(self, num_classes: int, num_groups: int) -> None:
        super().__init__()
        self.register_buffer("by_class", torch.zeros(2, num_classes, dtype=torch.float64))  # sums, counts
        self.register_buffer("by_group", torch.zeros(2, num_groups, dtype=torch.float64))

    @torch.no_grad()
    def add(self, strengths: Tensor, targets: Tensor, groups: Tensor | None = None) -> None:
        """Count a batch, that of all ranks, so that any rank's state is the whole."""
        rows = torch.stack([strengths, torch.ones_like(strengths)]).double()
        _add(self.by_class, targets, rows)
        if groups is not None and self.by_group.shape[1]:
            _add(self.by_group, groups, rows)

    def take(self) -> dict[str, Any]:
        """The means so far; starts a new epoch. None stands where there was no sample."""
        total, count = self.by_class.sum(1).tolist()
        if not count:
            return {}
        figures: dict[str, Any] = {"strength_mean": total / count, "strength_by_class": _means(self.by_class)}
        if self.by_group.shape[1]:
            figures["strength_by_group"] = _means(self.by_group)
        self.by_class.zero_()
        self.by_group.zero_()
        return figures


def _add(sums: Tensor, labels: Tensor, rows: Tensor) -> None:
    batch = torch.zeros_like(sums).index_add_(1, labels, rows)
    sums += all_reduce(batch)


def _means(sums: Tensor) -> list[float | None]:
    return [total / count if count else None for total, count in sums.T.tolist()]
