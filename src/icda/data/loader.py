"""Batches in an order that depends on nothing but a seed, an epoch and a rank."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.task import Batch, Split
from icda.errors import InputError

PREFETCHED = 2


class BatchLoader:
    """Serves a split batch by batch; every epoch and every batch can be made again from its number.

    The order of an epoch comes from (seed, epoch) and the augmentation of batch k from (seed, epoch, k, rank): training
    that resumes at batch k sees bit for bit what it would have seen. `batch_size` counts the samples of all ranks
    together; rank r takes positions r, r + world_size, ... of each batch. `weights` draw an epoch's samples with
    replacement.

    With `shuffle`, a last batch that would give some rank fewer than two samples is dropped: BatchNorm cannot normalise
    a single sample. Without it everything is served, and some ranks may get an empty last batch.

    >>> from icda.data.sources import FeatureArray
    >>> split = Split(FeatureArray(torch.eye(5)), torch.arange(5), torch.tensor([0, 1, 0, 1, 0]))
    >>> loader = BatchLoader(split, 2, seed=0, shuffle=True, augment=False)
    >>> len(loader), [batch.num_samples for batch in loader.epoch(0)]
    (2, [2, 2])
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        seed: int,
        shuffle: bool,
        augment: bool,
        weights: Tensor | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < world_size:
            raise InputError(f"batch_size is {batch_size}, expected one sample or more for each of {world_size} ranks.")
        if weights is not None:
            assert shuffle, "a weighted sample has no order to keep"
            if weights.shape != (len(split),):
                raise InputError(
                    f"weights have shape {tuple(weights.shape)}, expected ({len(split)},), one per sample."
                )
            if not torch.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
                raise InputError("weights must be finite, not negative, and not all zero.")
        self.split, self.batch_size, self.seed, self.shuffle, self.augment = split, batch_size, seed, shuffle, augment
        self.rank, self.world_size = rank, world_size
        self._kept: tuple[int, Tensor] | None = None
        self._cumulated = None if weights is None else weights.to(torch.float64).cumsum(0)
        if shuffle and len(self) == 0:
            raise InputError(
                f"a split of {len(split)} cannot be trained on with {world_size} ranks: each needs two samples per batch."
            )

    def __len__(self) -> int:
        whole, rest = divmod(len(self.split), self.batch_size)
        kept = rest > 0 if not self.shuffle else rest >= min(self.batch_size, 2 * self.world_size)
        return whole + kept

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from `start_batch` on; a thread makes two of them ahead of the caller."""
        if not 0 <= start_batch <= len(self):
            raise InputError(f"start_batch is {start_batch}, expected 0..{len(self)}, the batches of an epoch.")
        return self._prefetch(epoch, start_batch)

    def batch(self, epoch: int, number: int) -> Batch:
        """One batch of an epoch, the same that `epoch` would serve."""
        if self._kept is None or self._kept[0] != epoch:
            self._kept = (epoch, self.order(epoch))  # asked for batch after batch, and dear where samples are many
        return self._make(self._kept[1], epoch, number)

    def _prefetch(self, epoch: int, start_batch: int) -> Iterator[Batch]:
        order = self.order(epoch)
        if not getattr(self.split.source, "draws_ahead", True):
            yield from (self._make(order, epoch, number) for number in range(start_batch, len(self)))
            return
        pool = ThreadPoolExecutor(1, thread_name_prefix="icda-batches")
        pending: deque[Future[Batch]] = deque()
        try:
            for number in range(start_batch, len(self)):
                pending.append(pool.submit(self._make, order, epoch, number))
                if len(pending) > PREFETCHED:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also reached when the caller drops the iterator half way
            pool.shutdown(wait=True, cancel_futures=True)

    def order(self, epoch: int) -> Tensor:
        """The positions of the split in the order in which an epoch serves them to all ranks."""
        if not self.shuffle:
            return torch.arange(len(self.split))
        generator = generator_for(self.seed, "order", epoch)
        if self._cumulated is None:
            return torch.randperm(len(self.split), generator=generator)
        # torch.multinomial stops at 2^24 samples; the inverse of the distribution function does not.
        draws = torch.rand(len(self.split), generator=generator, dtype=torch.float64) * self._cumulated[-1]
        return torch.searchsorted(self._cumulated, draws, right=True)

    def _make(self, order: Tensor, epoch: int, number: int) -> Batch:
        whole = order[number * self.batch_size : (number + 1) * self.batch_size]
        generator = generator_for(self.seed, "augment", epoch, number, self.rank) if self.augment else None
        return self.split.batch(whole[self.rank :: self.world_size], generator)


def balanced_weights(labels: Tensor) -> Tensor:
    """Sampling weights that make every label equally likely: one over the label's count. Works for groups, too.

    >>> balanced_weights(torch.tensor([0, 0, 1]))
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    return 1.0 / torch.bincount(labels)[labels].to(torch.float64)
