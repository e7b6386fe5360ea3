"""Samples sorted into blocks of equal label, padded to one length, so that one batched product serves all labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LabelGroups:
    """Where each sample stands when samples are laid out as (labels, longest block).

    `labels` (U,) are the distinct labels, ascending; sample i takes place `slots[i]` of the flattened U x `width` layout.

    >>> groups = LabelGroups.of(torch.tensor([7, 3, 7]))
    >>> groups.labels.tolist(), groups.width, groups.slots.tolist()
    ([3, 7], 2, [2, 0, 3])
    >>> groups.spread(torch.tensor([[1.0], [2.0], [4.0]])).sum(1).tolist()
    [[2.0], [5.0]]
    """

    labels: Tensor
    slots: Tensor
    width: int

    @classmethod
    def of(cls, targets: Tensor) -> LabelGroups:
        labels, inverse, sizes = torch.unique(targets, return_inverse=True, return_counts=True)
        return cls.from_places(labels, inverse, sizes)

    @classmethod
    def of_all(cls, targets: Tensor, num_classes: int) -> LabelGroups:
        """Over all classes, present or not: no search for the distinct labels, and matrices need no selecting."""
        return cls.from_places(torch.arange(num_classes, device=targets.device), targets)

    @classmethod
    def from_places(cls, labels: Tensor, places: Tensor, sizes: Tensor | None = None) -> LabelGroups:
        """As `of`, with each sample's place among `labels` known; a label may have no sample."""
        if sizes is None:
            sizes = torch.bincount(places, minlength=len(labels))
        order = torch.argsort(places, stable=True)
        starts = sizes.cumsum(0) - sizes
        rank = torch.arange(len(places), device=places.device) - starts[places[order]]
        width = int(sizes.max())
        slots = torch.empty_like(places)
        slots[order] = places[order] * width + rank
        return cls(labels, slots, width)

    @property
    def places(self) -> Tensor:
        """For each sample its place among `labels`."""
        return self.slots // self.width

    @property
    def wasteful(self) -> bool:
        """Padding would multiply the work: many labels, and one of them far more frequent than the rest."""
        return len(self.labels) * self.width > 8 * len(self.slots)

    def spread(self, values: Tensor) -> Tensor:
        """(N, K) -> (U, width, K), zero where no sample stands."""
        padded = values.new_zeros(len(self.labels) * self.width, values.shape[1])
        return padded.index_copy_(0, self.slots, values).view(len(self.labels), self.width, -1)

    def collect(self, padded: Tensor) -> Tensor:
        """(U, width, K) -> (N, K): `spread` undone."""
        return padded.flatten(0, 1)[self.slots]

    def blocks(self, values: Tensor) -> tuple[Tensor, ...]:
        """The rows of each label, without padding."""
        sizes = torch.bincount(self.places, minlength=len(self.labels))
        return values[torch.argsort(self.slots)].split(sizes.tolist())

    def sums(self, values: Tensor) -> Tensor:
        """(N, K) -> (U, K): the sum over the samples of each label."""
        if not self.wasteful:
            return self.spread(values).sum(1)
        return values.new_zeros(len(self.labels), values.shape[1]).index_add(0, self.places, values)

    def products(self, left: Tensor, right: Tensor) -> Tensor:
        """(N, K), (N, M) -> (U, K, M): L_u^T R_u of each label. O(N K M), where a dense product takes U times that."""
        if not self.wasteful:
            return torch.bmm(self.spread(left).mT, self.spread(right))
        pairs = zip(self.blocks(left), self.blocks(right), strict=True)
        return torch.stack([block.T @ other for block, other in pairs])

    def apply(self, values: Tensor, matrices: Tensor) -> Tensor:
        """(N, K), (U, K, M) -> (N, M): each sample's row times its label's matrix."""
        if not self.wasteful:
            return self.collect(torch.bmm(self.spread(values), matrices))
        blocks = zip(self.blocks(values), matrices, strict=True)
        stacked = torch.cat([block @ matrix for block, matrix in blocks])
        return stacked[torch.argsort(torch.argsort(self.slots))]
