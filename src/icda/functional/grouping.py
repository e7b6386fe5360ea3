"""Samples sorted into blocks of equal label, so that one batched product serves all labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22  # of products made one sample at a time


def on_host(values: Tensor) -> np.ndarray | None:
    """The values where looking at them is free; None on an accelerator, whose queue would have to stop, and in a graph."""
    return None if values.device.type != "cpu" or torch.compiler.is_compiling() else values.detach().numpy()


@dataclass(frozen=True)
class LabelGroups:
    """Which of `number` labels each sample has, and how many samples each label has where that is known for free.

    >>> groups = LabelGroups.of(torch.tensor([2, 0, 2]), number=3)
    >>> groups.sizes, groups.sums(torch.tensor([[1.0], [2.0], [4.0]])).tolist()
    ((1, 0, 2), [[2.0], [0.0], [5.0]])
    """

    labels: Tensor  # (N,)
    number: int
    sizes: tuple[int, ...] | None

    @classmethod
    def of(cls, labels: Tensor, number: int) -> LabelGroups:
        known = on_host(labels)
        return cls(labels, number, None if known is None else tuple(np.bincount(known, minlength=number).tolist()))

    @property
    def longest(self) -> int:
        assert self.sizes is not None
        return max(self.sizes)

    @property
    def fits(self) -> bool:
        """Whether blocks are padded to one length: not where sizes are unknown, or one label is far more frequent."""
        return self.sizes is not None and self.number * self.longest <= 8 * len(self.labels)

    def sums(self, values: Tensor) -> Tensor:
        """(N, K) -> (U, K): the sum over the samples of each label."""
        return values.new_zeros(self.number, values.shape[1]).index_add_(0, self.labels, values)

    def products(self, left: Tensor, right: Tensor) -> Tensor:
        """(N, K), (N, M) -> (U, K, M): L_u^T R_u of each label. O(N K M), where a dense product takes U times that."""
        if self.fits:
            return torch.bmm(self.padded(left).mT, self.padded(right))
        total = left.new_zeros(self.number, left.shape[1], right.shape[1])
        if self.sizes is not None:
            for label, rows in self._blocks():
                torch.mm(left[rows].T, right[rows], out=total[label])
            return total
        for span in self._chunks(left.shape[1] * right.shape[1]):
            total.index_add_(0, self.labels[span], left[span][:, :, None] * right[span][:, None])
        return total

    def apply(self, values: Tensor, matrices: Tensor) -> Tensor:
        """(N, K), (U, K, M) -> (N, M): each sample's row times its label's matrix."""
        if self.fits:
            return torch.bmm(self.padded(values), matrices).flatten(0, 1)[self._slots()]
        if self.sizes is None:
            parts = [
                torch.bmm(values[rows][:, None], matrices[self.labels[rows]])[:, 0]
                for rows in self._chunks(matrices[0].numel())
            ]
            return torch.cat(parts)
        order = torch.argsort(self.labels, stable=True)
        return torch.cat([values[rows] @ matrices[label] for label, rows in self._blocks()])[torch.argsort(order)]

    def padded(self, values: Tensor) -> Tensor:
        """(N, K) -> (U, longest block, K), zero where no sample stands."""
        laid_out = values.new_zeros(self.number * self.longest, values.shape[1])
        return laid_out.index_copy(0, self._slots().to(values.device), values).view(self.number, self.longest, -1)

    def _slots(self) -> Tensor:
        """The place of each sample among U blocks of the longest's length."""
        order = torch.argsort(self.labels, stable=True)
        sizes, sorted_labels = torch.tensor(self.sizes), self.labels[order]
        starts = sizes.cumsum(0) - sizes
        slots = torch.empty_like(self.labels)
        slots[order] = sorted_labels * self.longest + torch.arange(len(order)) - starts[sorted_labels]
        return slots

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Labels that have samples, and their rows."""
        assert self.sizes is not None
        order = torch.argsort(self.labels, stable=True)
        parts = order.split(list(self.sizes))
        return ((label, rows) for label, rows in enumerate(parts) if len(rows))

    def _chunks(self, numbers: int) -> Iterator[slice]:
        step = max(1, CHUNK_ELEMENTS // numbers)
        return (slice(start, start + step) for start in range(0, len(self.labels), step))
