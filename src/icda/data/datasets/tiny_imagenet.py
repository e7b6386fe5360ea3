"""A hundred classes of Tiny ImageNet at 32 x 32 pixels: long-tailed, for CIFAR-100-LT, or with a generalised long tail."""

import hashlib
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.bias import generalised_tail as tails
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets.benchmark_files import decode_blob, read_named
from icda.data.generators import generator_for
from icda.data.registry import TASKS, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import cut_splits, take_per_class
from icda.data.task import Task
from icda.errors import InputError

FILE = "tiny_imagenet_lt100.npz"
HOME = "Tiny ImageNet of Stanford's CS231n course"
SIZE, CLASSES, METADATA = 32, 100, 10
MEAN, STD = (0.465, 0.448, 0.404), (0.255, 0.241, 0.255)  # of the training images
TRAIN, HELD_OUT = 0, 2  # what the file's `split` says
CLUSTER_FILE = "clusters/tiny_imagenet.npz"
LARGEST, RATIO = 300, 60
STORIES = {
    "clt": "Train-GLT, long-tailed 60:1 in classes and 7:2:1 in attributes; Test-CBL, 20 per class, 7:2:1",
    "glt": "Train-GLT, long-tailed 60:1 in classes and 7:2:1 in attributes; Test-GBL, up to 4 of each attribute per class",
    "alt": "Train-CBL, 10 per class, 7:2:1 in attributes; Test-GBL, up to 4 of each attribute per class",
}


class StoredImages(NamedTuple):
    """All of the file: images (N, 32, 32, 3) as bytes, their labels, the part each belongs to, the classes' names."""

    images: np.ndarray
    labels: torch.Tensor
    split: torch.Tensor
    names: tuple[str, ...]


@TASKS.register("tiny_imagenet_lt")
def tiny_imagenet_lt(root: Path | None, seed: int) -> Task:
    """Tiny ImageNet, 100 classes at 32 pixels, long-tailed 100:1.

    The 10,847 training images are fixed by the file. Of its 50 balanced images per class ten, chosen by the seed, are
    metadata.
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
    files = f"{FILE}, an npz file of WebP images (blob, offsets, y, split, wnids)"
    return (find_folder(root, "the long-tailed Tiny ImageNet", [("", FILE)], files, HOME) / FILE).resolve()


@lru_cache(maxsize=1)  # decoding takes seconds, and a benchmark asks many times
def read_stored(path: Path) -> StoredImages:
    arrays = read_named(path, ("blob", "offsets", "y", "split", "wnids"))
    labels, split = (torch.from_numpy(arrays[name]).long() for name in ("y", "split"))
    images = decode_blob(arrays["blob"], arrays["offsets"]).numpy()
    return StoredImages(images, labels, split, tuple(map(str, arrays["wnids"])))


def read_clusters(stored: StoredImages) -> Tensor:
    """The cluster (N,) of each image, as the package carries it for one order of the images, which is checked."""
    with (
        resources.as_file(resources.files("icda.data.datasets") / CLUSTER_FILE) as path,
        np.load(path, allow_pickle=False) as file,
    ):
        clusters, digest = file["clusters"], str(file["digest"])
    if digest != labels_digest(stored):
        raise InputError(
            f"the clusters that icda carries are not of this {FILE} ({len(clusters)} images there, {len(stored.labels)} "
            "here, or other labels). Fetch the file again, or make clusters for it with tools/tiny_imagenet_clusters.py."
        )
    return torch.from_numpy(clusters.astype(np.int64))


def labels_digest(stored: StoredImages) -> str:
    """SHA-256 over the labels and parts of all images, which no other order of them would give."""
    digest = hashlib.sha256(stored.labels.numpy().astype("<i8").tobytes())
    digest.update(stored.split.numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def tiny_imagenet_glt(root: Path | None, seed: int, *, protocol: str) -> Task:
    """Tiny ImageNet, 100 classes at 32 pixels, under a protocol of the GLT benchmark; groups are attributes.

    The pool are all 15,847 images of the file; the seed decides which go where.
    """
    path = locate_file(root)
    stored = read_stored(path)
    clusters = read_clusters(stored)
    parts = tails.generalised_tail(clusters, stored.labels, seed, wanted_sizes(clusters, stored.labels))
    train, test = parts.protocol(protocol)
    rows = {"train": train, "test": test, "metadata": parts.metadata}
    return Task(
        name=f"tiny_imagenet_{protocol}",
        num_classes=CLASSES,
        **cut_splits(_source(path), stored.labels, parts.attributes, **rows),
        group_names=tails.ATTRIBUTE_NAMES,
        class_names=stored.names,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet14",
        description=f"100 classes of Tiny ImageNet at 32 x 32 pixels: {STORIES[protocol]}. Groups are attributes; "
        "metadata are balanced by cluster.",
    )


for _protocol in tails.PROTOCOLS:
    TASKS.register(f"tiny_imagenet_{_protocol}")(partial(tiny_imagenet_glt, protocol=_protocol))


def wanted_sizes(clusters: Tensor, labels: Tensor) -> tails.TailSizes:
    """The sizes of all parts; the class with most common images has rank 0 in Train-GLT, as it can give most.

    Small, so that every class (the smallest has 55 images, three of them rare) has 7, 2 and 1 left for Train-CBL.
    """
    common = torch.bincount(labels[tails.attributes_of(clusters) == 0], minlength=CLASSES)
    ranks = common.argsort(descending=True, stable=True).argsort()
    falling = long_tail_counts(LARGEST, CLASSES, RATIO)
    return tails.TailSizes(
        train=[falling[rank] for rank in ranks.tolist()],
        balanced=10,
        test_gbl=4,
        test_gbl_divisor=2,
        test_cbl=2,
        metadata=2,
        share_tests=True,
    )


@lru_cache(maxsize=1)  # three protocols share the images
def _source(path: Path) -> ImageArray:
    return ImageArray(read_stored(path).images, MEAN, STD, crop_padding=4, flip=True)
