"""CIFAR-10 and CIFAR-100: whole, long-tailed, with wrong labels, and small versions of CIFAR-10.

The small ones have fewer images at 16 pixels, averaged over 2 x 2, for grids of many runs on a few cores; the test set is
the whole one. Ten clean images per class are metadata in all of them, so that methods with and without metadata train on
the same images. Names that end in `_validation` add 100 unused images per class as a validation split and change nothing
else: what is tuned there may be reported without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import keep_counts, long_tail, long_tail_counts
from icda.data.bias.noise import noisy_labels
from icda.data.datasets import cifar_files
from icda.data.generators import generator_for
from icda.data.registry import TASKS, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

HOME = "the University of Toronto's CIFAR page (the archive 'CIFAR-{} python version', unpacked)"
FOLDER, FINE_FOLDER = "cifar-10-batches-py", "cifar-100-python"
FILES = f"the folder {FOLDER} with data_batch_1 to data_batch_5 and test_batch"
FINE_FILES = f"the folder {FINE_FOLDER} with train, test and meta"
LAYOUTS = [("cifar10", "manifest.json"), (FOLDER, "data_batch_1"), (f"cifar10/{FOLDER}", "data_batch_1")]
FINE_LAYOUTS = [(FINE_FOLDER, "train"), (f"cifar100/{FINE_FOLDER}", "train")]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
NOISE_METADATA = 1000  # images in all
LONG_TAIL_METADATA = 10  # images per class
SIZE = 16  # pixels of the small tasks
METADATA, VALIDATION = 10, 100  # images per class
LARGEST = 500  # images in the largest class of a long tail
STANDARD, NOISY = 250, 120  # images per class without a long tail


class CifarImages(NamedTuple):
    """The training images and their labels, and the test split."""

    source: ImageArray
    labels: Tensor
    test: Split
    class_names: tuple[str, ...]


def load_cifar10(root: Path | None) -> CifarImages:
    """Everything of CIFAR-10, as batches or as grids, decoded once in a process."""
    return _read(find_folder(root, "CIFAR-10", LAYOUTS, FILES, HOME.format(10)).resolve())


def load_cifar100(root: Path | None) -> CifarImages:
    """Everything of CIFAR-100, decoded once in a process."""
    return _read(find_folder(root, "CIFAR-100", FINE_LAYOUTS, FINE_FILES, HOME.format(100)).resolve())


@lru_cache(maxsize=2)  # decoding takes seconds, and a benchmark asks for many tasks made of the same images
def _read(folder: Path) -> CifarImages:
    names: tuple[str, ...] = CLASSES
    if (folder / "manifest.json").is_file():
        arrays = cifar_files.read_grids(folder)
    elif folder.name == FINE_FOLDER:
        arrays = cifar_files.read_batches(folder, cifar_files.FINE_SUMS, b"fine_labels")
        names = cifar_files.read_class_names(folder, cifar_files.NAMES_SUMS)
    else:
        arrays = cifar_files.read_batches(folder)
    labels, test_labels = torch.from_numpy(arrays.train_labels), torch.from_numpy(arrays.test_labels)
    test = Split(ImageArray(arrays.test_images, MEAN, STD), torch.arange(len(test_labels)), test_labels)
    return CifarImages(ImageArray(arrays.train_images, MEAN, STD, crop_padding=4, flip=True), labels, test, names)


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
        return self._task(self.name, data, torch.arange(len(data.labels)), None, "unbiased")

    def long_tailed(self, root: Path | None, seed: int, *, ratio: int, meta: bool) -> Task:
        """A long tail. With `meta`, ten images per class are first set aside as metadata, so classes are a bit smaller."""
        data = self.load(root)
        aside = LONG_TAIL_METADATA if meta else 0
        chosen = long_tail(data.labels, ratio, generator_for(seed, f"{self.name}_lt"), metadata_per_class=aside)
        name = f"{self.name}_lt_{ratio}" + ("_meta" if meta else "")
        return self._task(name, data, *chosen, f"long-tailed {ratio}:1; the test set is balanced")

    def noisy(self, root: Path | None, seed: int, *, kind: str, percent: int) -> Task:
        """Wrong labels by Meta-Weight-Net's protocol: 1,000 clean metadata images, 49,000 noisy ones."""
        data = self.load(root)
        name = f"{self.name}_{kind.rstrip('2')}_{percent}"
        generator = generator_for(seed, name)
        classes = len(data.class_names)
        aside, rows = take_per_class(data.labels, [NOISE_METADATA // classes], generator)
        wrong = noisy_labels(data.labels[rows], kind, classes, percent / 100, generator)
        what = f"{kind} label noise {percent} % on 49,000 training images; 1,000 clean images are metadata"
        return self._task(name, data, rows, aside, what, wrong)

    def _task(
        self, name: str, data: CifarImages, rows: Tensor, aside: Tensor | None, what: str, given: Tensor | None = None
    ) -> Task:
        clean = data.labels[rows]
        return Task(
            name=name,
            num_classes=len(data.class_names),
            train=Split(data.source, rows, clean) if given is None else Split(data.source, rows, given, None, clean),
            validation=None,
            test=data.test,
            metadata=None if aside is None else Split(data.source, aside, data.labels[aside]),
            class_names=data.class_names,
            input_shape=(3, 32, 32),
            default_model="resnet32",
            description=f"{self.title}, {what}. No validation set, as in the literature: report the last epoch.",
        )


CifarFamily("cifar10", "CIFAR-10", load_cifar10).register()
CifarFamily("cifar100", "CIFAR-100", load_cifar100).register()


def cifar10_small(root: Path | None, seed: int, *, bias: str, amount: int, validation: bool) -> Task:
    """Small CIFAR-10 of 16 x 16 pixels: balanced, long-tailed, or with wrong labels."""
    data = load_cifar10(root)
    labels, whole = data.labels, data.test.source
    assert isinstance(whole, ImageArray)
    train_source, test_source = _shrunk(data.source, True), _shrunk(whole, False)
    name = _name(bias, amount)
    generator = generator_for(seed, name)
    metadata, aside, pool = take_per_class(labels, [METADATA, VALIDATION], generator)
    sizes = [STANDARD if bias == "none" else NOISY] * len(CLASSES)
    sizes = long_tail_counts(LARGEST, len(CLASSES), amount) if bias == "lt" else sizes
    rows = pool[keep_counts(labels[pool], sizes, generator)]
    clean = labels[rows]
    given = clean
    if bias in ("flip", "uniform"):
        given = noisy_labels(clean, "flip2" if bias == "flip" else bias, len(CLASSES), amount / 100, generator)
    return Task(
        name=name + ("_validation" if validation else ""),
        num_classes=len(CLASSES),
        train=Split(train_source, rows, given, clean_targets=None if given is clean else clean),
        validation=Split(train_source, aside, labels[aside]) if validation else None,
        test=replace(data.test, source=test_source),
        metadata=Split(train_source, metadata, labels[metadata]),
        class_names=CLASSES,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet8",
        description=f"{len(rows):,} images of CIFAR-10 at {SIZE} x {SIZE} pixels; test is whole, clean and balanced.",
    )


def _name(bias: str, amount: int) -> str:
    return "cifar10_small" if bias == "none" else f"cifar10_{bias}_{amount}_small"


@lru_cache(maxsize=2)
def _shrunk(source: ImageArray, augmented: bool) -> ImageArray:
    """The images at half their size. Training images are mirrored but not cropped, so that a small network overfits."""
    return ImageArray(halve(source.images.numpy()), MEAN, STD, flip=augmented)


def halve(images: np.ndarray) -> np.ndarray:
    """Average 2 x 2 pixels of bytes (N, H, W, C), rounded half up."""
    total = images[:, ::2, ::2].astype(np.uint16)
    for part in (images[:, 1::2, ::2], images[:, ::2, 1::2], images[:, 1::2, 1::2]):
        total += part
    return ((total + 2) // 4).astype(np.uint8)


BIASES = (("none", 0), ("lt", 100), ("lt", 10), ("flip", 20), ("flip", 40), ("uniform", 40), ("uniform", 60))
for _bias, _amount in BIASES:
    for _validation in (False, True):
        _registered = _name(_bias, _amount) + ("_validation" if _validation else "")
        TASKS.register(_registered)(partial(cifar10_small, bias=_bias, amount=_amount, validation=_validation))
