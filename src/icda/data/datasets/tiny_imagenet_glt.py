"""Tiny ImageNet with a generalised long tail: rare classes and, within each class, rare looks."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor

from icda.data.bias.generalised_tail import ATTRIBUTE_NAMES, PROTOCOLS, TailSizes, attributes_of, generalised_tail
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets.tiny_imagenet import CLASSES, MEAN, SIZE, STD, locate_file, read_stored
from icda.data.datasets.tiny_imagenet_clusters import read_clusters
from icda.data.registry import TASKS
from icda.data.sources import ImageArray
from icda.data.splits import cut_splits
from icda.data.task import Task

LARGEST, RATIO = 300, 60
STORIES = {
    "clt": "Train-GLT, long-tailed 60:1 in classes and 7:2:1 in attributes; Test-CBL, 20 per class, 7:2:1",
    "glt": "Train-GLT, long-tailed 60:1 in classes and 7:2:1 in attributes; Test-GBL, up to 4 of each attribute per class",
    "alt": "Train-CBL, 10 per class, 7:2:1 in attributes; Test-GBL, up to 4 of each attribute per class",
}


def tiny_imagenet_glt(root: Path | None, seed: int, *, protocol: str) -> Task:
    """Tiny ImageNet, 100 classes at 32 pixels, under a protocol of the GLT benchmark.

    The pool are all 15,847 images of the file, its long-tailed and its balanced ones; the seed decides which go where.
    The group of a sample is its attribute, so that accuracy is reported for common, middling and rare looks.
    """
    path = locate_file(root)
    stored = read_stored(path)
    clusters = read_clusters(stored)
    parts = generalised_tail(clusters, stored.labels, seed, wanted_sizes(clusters, stored.labels))
    train, test = parts.protocol(protocol)
    rows = {"train": train, "test": test, "metadata": parts.metadata}
    return Task(
        name=f"tiny_imagenet_{protocol}",
        num_classes=CLASSES,
        **cut_splits(_source(path), stored.labels, parts.attributes, **rows),
        group_names=ATTRIBUTE_NAMES,
        class_names=stored.names,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet14",
        description=f"100 classes of Tiny ImageNet at 32 x 32 pixels: {STORIES[protocol]}. Groups are attributes; "
        "metadata are balanced by cluster.",
    )


for _protocol in PROTOCOLS:
    TASKS.register(f"tiny_imagenet_{_protocol}")(partial(tiny_imagenet_glt, protocol=_protocol))


def wanted_sizes(clusters: Tensor, labels: Tensor) -> TailSizes:
    """The sizes of all parts; the class with most common images has rank 0 in Train-GLT, as it can give most.

    They are small because the smallest classes have 55 images, 25 of their common attribute and three of their rare one:
    with these sizes every class has 7, 2 and 1 left for Train-CBL whatever the seed.
    """
    common = torch.bincount(labels[attributes_of(clusters) == 0], minlength=CLASSES)
    ranks = common.argsort(descending=True, stable=True).argsort()
    falling = long_tail_counts(LARGEST, CLASSES, RATIO)
    return TailSizes(
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
