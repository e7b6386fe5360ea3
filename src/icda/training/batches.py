"""Which batches a training reads: a stage's own, further ones drawn in a step, and the metadata.

Every batch is a function of the seed and the iteration, so that a resumed training needs no state of its loaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from accelerate import Accelerator
from torch import Tensor

from icda.data.loader import BatchLoader, balanced_weights
from icda.data.sources import transformed
from icda.data.task import Batch, Split, Task
from icda.methods.base import Method, Sampling, Stage
from icda.training.config import TrainConfig
from icda.training.evaluation import to_device


class TrainingBatches:
    """Serves a task's samples to a method, drawn as its stages ask, each rank its share."""

    def __init__(self, config: TrainConfig, task: Task, method: Method, accelerator: Accelerator) -> None:
        self.config, self.task, self.method, self.accelerator = config, task, method, accelerator
        self._drawing: dict[str, BatchLoader] = {}
        self._metadata: BatchLoader | None = None
        if task.metadata is not None:
            self._metadata = self._loader(task.metadata, config.seed + 1, size=method.meta_batch_size)

    def stage_length(self, stage: Stage) -> int:
        """Batches per epoch of this stage; sampling changes which samples they hold, not how many."""
        return len(self._loader(self._split(stage), seed=0))

    def stage_loader(self, stage: Stage) -> BatchLoader:
        """The batches of a stage. `Method.sampling_weights` is asked now where the stage says so."""
        split = self._split(stage)
        return self._loader(split, self.config.seed, self._weights(split, stage.sampling))

    def in_order(self, stage: Stage) -> Iterator[Batch]:
        """The whole split that a stage trains on, as it is: not shuffled, not augmented, not shared among ranks."""
        loader = BatchLoader(self._split(stage), self.config.batch_size, seed=0, shuffle=False, augment=False)
        for batch in loader.epoch(0):
            yield self._on_device(batch)

    def start_epoch(self) -> None:
        """Forget how `draw` drew: a method's own weights may have changed."""
        self._drawing.clear()

    def draw(self, sampling: Sampling, iteration: int) -> Batch:
        """One more training batch for this iteration."""
        if sampling not in self._drawing:
            weights = self._weights(self.task.train, sampling)
            self._drawing[sampling] = self._loader(self.task.train, self.config.seed + 2, weights)
        return self._numbered(self._drawing[sampling], iteration)

    def metadata(self, iteration: int) -> Batch:
        """The metadata batch of this iteration."""
        assert self._metadata is not None, "check_needs admits no method without its metadata"
        return self._numbered(self._metadata, iteration)

    def share(self, batch: Batch) -> float:
        """What this rank's batch counts for in a mean over ranks: those at the end of an epoch differ in size."""
        world = self.accelerator.num_processes
        if world == 1:
            return 1.0
        sizes = self.accelerator.gather(torch.tensor([batch.num_samples], device=self.accelerator.device))
        return batch.num_samples * world / int(sizes.sum())

    def _split(self, stage: Stage) -> Split:
        if stage.split == "train":
            return self.task.train
        assert self.task.validation is not None, "check_needs admits no method without its validation data"
        return self.task.validation

    def _weights(self, split: Split, sampling: Sampling) -> Tensor | None:
        """What samples are drawn by; None serves each of them once per epoch."""
        if sampling == "uniform":
            return None
        if sampling == "own":
            return self.method.sampling_weights()
        if sampling.startswith("class"):
            weights = balanced_weights(split.targets)
            return weights**2 if sampling == "class_reversed" else weights  # n_c samples of 1/n_c^2: a class has 1/n_c
        assert split.groups is not None, "check_needs admits no method without its groups"
        by_group = sampling == "group_balanced"
        return balanced_weights(split.groups if by_group else self.task.group_domains()[split.groups])

    def _loader(self, split: Split, seed: int, weights: Tensor | None = None, size: int | None = None) -> BatchLoader:
        if self.method.augment_images is not None:
            split = replace(split, source=transformed(split.source, self.method.augment_images))
        return BatchLoader(
            split,
            min(size or self.config.batch_size, len(split)),
            seed=seed,
            shuffle=True,
            augment=True,
            weights=weights,
            rank=self.accelerator.process_index,
            world_size=self.accelerator.num_processes,
        )

    def _numbered(self, loader: BatchLoader, iteration: int) -> Batch:
        epoch, number = divmod(iteration, len(loader))
        return self._on_device(loader.batch(epoch, number))

    def _on_device(self, batch: Batch) -> Batch:
        return to_device(batch, self.accelerator.device)
