"""A hundred classes of Tiny ImageNet at 32 x 32 pixels, long-tailed: it stands in for CIFAR-100-LT."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import DatasetNotFoundError, data_root
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

FILE = "tiny_imagenet_lt100.npz"
SIZE, CLASSES, METADATA = 32, 100, 10
MEAN, STD = (0.465, 0.448, 0.404), (0.255, 0.241, 0.255)  # of the training images
DECODER_THREADS = 4
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
    train_rows = (stored.split == TRAIN).nonzero().flatten()
    source = ImageArray(stored.images, MEAN, STD, crop_padding=4, flip=True)

    def split(rows: torch.Tensor) -> Split:
        return Split(source, rows, stored.labels[rows])

    return Task(
        name="tiny_imagenet_lt",
        num_classes=CLASSES,
        train=split(train_rows),
        validation=None,
        test=split(held_out[rest]),
        metadata=split(held_out[chosen]),
        class_names=stored.names,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet32",
        description="100 classes of Tiny ImageNet at 32 x 32 pixels, long-tailed 100:1; test is balanced, 40 per class. "
        "The order of class sizes is shuffled.",
    )


def locate_file(root: Path | None) -> Path:
    """Where the file lies below the root."""
    path = data_root(root) / FILE
    if not path.is_file():
        raise DatasetNotFoundError(
            f"the long-tailed Tiny ImageNet is not there: looked for {path.absolute()}. Expected: an npz file of WebP "
            "images (blob, offsets, y, split, wnids), made of Tiny ImageNet of Stanford's CS231n course. Put it there, or "
            "say where it lies with root=... or the environment variable ICDA_DATA."
        )
    return path.resolve()


@lru_cache(maxsize=1)  # decoding takes seconds, and a benchmark asks many times
def read_stored(path: Path) -> StoredImages:
    """Everything in the file, decoded once in a process."""
    with np.load(path, allow_pickle=False) as file:
        blob, offsets = file["blob"].tobytes(), file["offsets"]
        labels, split, names = file["y"], file["split"], file["wnids"]
    pieces = [blob[start:stop] for start, stop in pairwise(offsets)]
    with ThreadPoolExecutor(DECODER_THREADS) as pool:
        images = np.stack(list(pool.map(_decode, pieces)))
    return StoredImages(images, torch.from_numpy(labels).long(), torch.from_numpy(split).long(), tuple(map(str, names)))


def _decode(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))
