"""What CIFAR-10 and CIFAR-100 are made into: whole, long-tailed, and with wrong labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import corrupt_labels, noise_transition
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
NOISE_METADATA = 1000  # images in all
LONG_TAIL_METADATA = 10  # images per class


class CifarImages(NamedTuple):
    """The training images and their labels, and the test split."""

    source: ImageArray
    labels: Tensor
    test: Split
    class_names: tuple[str, ...]

    @classmethod
    def of(
        cls, images: np.ndarray, labels: Tensor, test_images: np.ndarray, test_labels: Tensor, names: tuple[str, ...]
    ) -> CifarImages:
        test = Split(ImageArray(test_images, MEAN, STD), torch.arange(len(test_labels)), test_labels)
        return cls(ImageArray(images, MEAN, STD, crop_padding=4, flip=True), labels, test, names)


@dataclass(frozen=True)
class CifarFamily:
    """The tasks of one of the two: `name` begins theirs, `title` their descriptions."""

    name: str
    title: str
    load: Callable[[Path | None], CifarImages]

    def register(self) -> None:
        TASKS.register(self.name)(self.whole)
        for ratio in (100, 10):
            TASKS.register(f"{self.name}_lt_{ratio}")(partial(self.long_tailed, ratio=ratio, meta=False))
            TASKS.register(f"{self.name}_lt_{ratio}_meta")(partial(self.long_tailed, ratio=ratio, meta=True))
        for kind, percent in (("uniform", 40), ("uniform", 60), ("flip2", 20), ("flip2", 40)):
            name = f"{self.name}_{kind.rstrip('2')}_{percent}"
            TASKS.register(name)(partial(self.noisy, kind=kind, percent=percent))

    def whole(self, root: Path | None, seed: int) -> Task:
        """All 50,000 training images; nothing here depends on the seed."""
        data = self.load(root)
        train = Split(data.source, torch.arange(len(data.labels)), data.labels)
        return self._task(self.name, data, train, None, "unbiased")

    def long_tailed(self, root: Path | None, seed: int, *, ratio: int, meta: bool) -> Task:
        """A long tail. With `meta`, ten images per class are first set aside as metadata, so classes are a bit smaller."""
        data = self.load(root)
        aside = LONG_TAIL_METADATA if meta else 0
        chosen = long_tail(data.labels, ratio, generator_for(seed, f"{self.name}_lt"), metadata_per_class=aside)
        train = Split(data.source, chosen.train, data.labels[chosen.train])
        metadata = None
        if chosen.metadata is not None:
            metadata = Split(data.source, chosen.metadata, data.labels[chosen.metadata])
        name = f"{self.name}_lt_{ratio}" + ("_meta" if meta else "")
        return self._task(name, data, train, metadata, f"long-tailed {ratio}:1; the test set is balanced")

    def noisy(self, root: Path | None, seed: int, *, kind: str, percent: int) -> Task:
        """Wrong labels by Meta-Weight-Net's protocol: 1,000 clean metadata images, 49,000 noisy ones."""
        data = self.load(root)
        name = f"{self.name}_{kind.rstrip('2')}_{percent}"
        generator = generator_for(seed, name)
        classes = len(data.class_names)
        aside, rows = take_per_class(data.labels, [NOISE_METADATA // classes], generator)
        clean = data.labels[rows]
        wrong = corrupt_labels(clean, noise_transition(kind, classes, percent / 100, generator), generator)
        train = Split(data.source, rows, wrong, clean_targets=clean)
        metadata = Split(data.source, aside, data.labels[aside])
        what = f"{kind} label noise {percent} % on 49,000 training images; 1,000 clean images are metadata"
        return self._task(name, data, train, metadata, what)

    def _task(self, name: str, data: CifarImages, train: Split, metadata: Split | None, what: str) -> Task:
        return Task(
            name=name,
            num_classes=len(data.class_names),
            train=train,
            validation=None,
            test=data.test,
            metadata=metadata,
            class_names=data.class_names,
            input_shape=(3, 32, 32),
            default_model="resnet32",
            description=f"{self.title}, {what}. No validation set, as in the literature: report the last epoch.",
        )
