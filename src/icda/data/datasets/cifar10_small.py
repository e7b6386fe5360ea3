"""Small versions of the CIFAR-10 tasks: fewer images at 16 pixels, for grids of many runs on a few cores.

Each has the bias of its large namesake. The images are CIFAR-10's, averaged over 2 x 2 pixels; the test set is the whole
one. Ten clean images per class are metadata in all of them, so that methods with and without metadata train on the same
images. The names that end in `_validation` add 100 unused images per class as a validation split and change nothing else:
what is tuned there may be reported without it.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import keep_counts, long_tail_counts
from icda.data.bias.noise import noisy_labels
from icda.data.datasets.cifar import CLASSES, MEAN, STD, load_cifar10
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

SIZE = 16
METADATA, VALIDATION = 10, 100  # images per class
LARGEST = 500  # images in the largest class of a long tail
STANDARD, NOISY = 250, 120  # images per class without a long tail


def cifar10_small(root: Path | None, seed: int, *, bias: str, amount: int, validation: bool) -> Task:
    """Small CIFAR-10 of 16 x 16 pixels: balanced, long-tailed, or with wrong labels."""
    train_source, test_source, labels, test_labels = _load(root)
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
        test=Split(test_source, torch.arange(len(test_labels)), test_labels),
        metadata=Split(train_source, metadata, labels[metadata]),
        class_names=CLASSES,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet8",
        description=f"{len(rows):,} images of CIFAR-10 at {SIZE} x {SIZE} pixels; test is whole, clean and balanced.",
    )


def _name(bias: str, amount: int) -> str:
    return "cifar10_small" if bias == "none" else f"cifar10_{bias}_{amount}_small"


def _load(root: Path | None) -> tuple[ImageArray, ImageArray, Tensor, Tensor]:
    data = load_cifar10(root)
    test = data.test.source
    assert isinstance(test, ImageArray)
    return _shrunk(data.source, True), _shrunk(test, False), data.labels, data.test.targets


@lru_cache(maxsize=2)
def _shrunk(source: ImageArray, augmented: bool) -> ImageArray:
    """The images at half their size. Training images are mirrored but not cropped, so that a small network overfits."""
    return ImageArray(halve(source.images.numpy()), MEAN, STD, flip=augmented)


def halve(images: np.ndarray) -> np.ndarray:
    """Average 2 x 2 pixels of bytes (N, H, W, C), rounded half up.

    >>> halve(np.array([[0, 1], [2, 3]], dtype=np.uint8).reshape(1, 2, 2, 1)).item()
    2
    """
    total = images[:, ::2, ::2].astype(np.uint16)
    for part in (images[:, 1::2, ::2], images[:, ::2, 1::2], images[:, 1::2, 1::2]):
        total += part
    return ((total + 2) // 4).astype(np.uint8)


BIASES = (("none", 0), ("lt", 100), ("lt", 10), ("flip", 20), ("flip", 40), ("uniform", 40), ("uniform", 60))
for _bias, _amount in BIASES:
    for _validation in (False, True):
        _registered = _name(_bias, _amount) + ("_validation" if _validation else "")
        TASKS.register(_registered)(partial(cifar10_small, bias=_bias, amount=_amount, validation=_validation))
