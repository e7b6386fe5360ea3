"""A hundred classes of Tiny ImageNet at 32 x 32 pixels, long-tailed: it stands in for CIFAR-100-LT."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from icda.data.datasets.benchmark_files import decode_blob, read_named
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import find_folder
from icda.data.sources import ImageArray
from icda.data.splits import cut_splits, take_per_class
from icda.data.task import Task

FILE = "tiny_imagenet_lt100.npz"
HOME = "Tiny ImageNet of Stanford's CS231n course"
SIZE, CLASSES, METADATA = 32, 100, 10
MEAN, STD = (0.465, 0.448, 0.404), (0.255, 0.241, 0.255)  # of the training images
TRAIN, HELD_OUT = 0, 2  # what the file's `split` says


class StoredImages(NamedTuple):
    """All of the file: images (N, 32, 32, 3) as bytes, their labels, the part each belongs to, the classes' names."""

    images: np.ndarray
    labels: torch.Tensor
    split: torch.Tensor
    names: tuple[str, ...]


@TASKS.register("tiny_imagenet_lt")
def tiny_imagenet_lt(root: Path | None, seed: int) -> Task:
    """Tiny ImageNet, 100 classes at 32 pixels, long-tailed 100:1.

    The 10,847 training images are fixed by the file. Of its 5,000 balanced images ten per class, chosen by the seed, are
    metadata and forty are for test: the tail's five training images per class could not spare any.
    """
    stored = read_stored(locate_file(root))
    held_out = (stored.split == HELD_OUT).nonzero().flatten()
    chosen, rest = take_per_class(stored.labels[held_out], [METADATA], generator_for(seed, "tiny_imagenet_lt"))
    return Task(
        name="tiny_imagenet_lt",
        num_classes=CLASSES,
        **cut_splits(
            ImageArray(stored.images, MEAN, STD, crop_padding=4, flip=True),
            stored.labels,
            train=(stored.split == TRAIN).nonzero().flatten(),
            test=held_out[rest],
            metadata=held_out[chosen],
        ),
        class_names=stored.names,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet32",
        description="100 classes of Tiny ImageNet at 32 x 32 pixels, long-tailed 100:1; test is balanced, 40 per class. "
        "The order of class sizes is shuffled.",
    )


def locate_file(root: Path | None) -> Path:
    """Where the file lies below the root."""
    files = f"{FILE}, an npz file of WebP images (blob, offsets, y, split, wnids)"
    return (find_folder(root, "the long-tailed Tiny ImageNet", [("", FILE)], files, HOME) / FILE).resolve()


@lru_cache(maxsize=1)  # decoding takes seconds, and a benchmark asks many times
def read_stored(path: Path) -> StoredImages:
    """Everything in the file, decoded once in a process."""
    arrays = read_named(path, ("blob", "offsets", "y", "split", "wnids"))
    labels, split = (torch.from_numpy(arrays[name]).long() for name in ("y", "split"))
    images = decode_blob(arrays["blob"], arrays["offsets"]).numpy()
    return StoredImages(images, labels, split, tuple(map(str, arrays["wnids"])))
