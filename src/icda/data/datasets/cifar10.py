"""CIFAR-10: whole, long-tailed, and with wrong labels."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import corrupt_labels, noise_transition
from icda.data.datasets.cifar10_files import BATCHES_FOLDER, read_batches, read_grids
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import find_folder
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

HOME = "the University of Toronto's CIFAR page (the archive 'CIFAR-10 python version', unpacked)"
FILES = f"the folder {BATCHES_FOLDER} with data_batch_1 to data_batch_5 and test_batch"
LAYOUTS = [
    ("cifar10", "manifest.json"),
    (BATCHES_FOLDER, "data_batch_1"),
    (f"cifar10/{BATCHES_FOLDER}", "data_batch_1"),
]
MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NOISE_METADATA, LONG_TAIL_METADATA = 100, 10  # images a class


class Cifar10Images(NamedTuple):
    """The training images and their labels, and the test split."""

    source: ImageArray
    labels: Tensor
    test: Split


def cifar10(root: Path | None, seed: int) -> Task:
    """All 50,000 training images; nothing here depends on the seed."""
    data = load_cifar10(root)
    train = Split(data.source, torch.arange(len(data.labels)), data.labels)
    return _task("cifar10", data, train, None, "CIFAR-10, unbiased.")


def cifar10_lt(root: Path | None, seed: int, *, ratio: int, meta: bool) -> Task:
    """CIFAR-10-LT. With `meta`, ten images a class are first set aside as metadata, so classes are a bit smaller."""
    data = load_cifar10(root)
    aside = LONG_TAIL_METADATA if meta else 0
    chosen = long_tail(data.labels, ratio, generator_for(seed, "cifar10_lt"), metadata_per_class=aside)
    train = Split(data.source, chosen.train, data.labels[chosen.train])
    metadata = None if chosen.metadata is None else Split(data.source, chosen.metadata, data.labels[chosen.metadata])
    name = f"cifar10_lt_{ratio}" + ("_meta" if meta else "")
    return _task(name, data, train, metadata, f"CIFAR-10, long-tailed {ratio}:1; the test set is balanced.")


def cifar10_noise(root: Path | None, seed: int, *, kind: str, percent: int) -> Task:
    """CIFAR-10 with wrong labels by Meta-Weight-Net's protocol: 1,000 clean metadata images, 49,000 noisy ones."""
    data = load_cifar10(root)
    name = f"cifar10_{kind.rstrip('2')}_{percent}"
    generator = generator_for(seed, name)
    metadata, train = take_per_class(data.labels, [NOISE_METADATA], generator)
    clean = data.labels[train]
    noisy = corrupt_labels(clean, noise_transition(kind, len(CLASSES), percent / 100, generator), generator)
    return _task(
        name,
        data,
        Split(data.source, train, noisy, clean_targets=clean),
        Split(data.source, metadata, data.labels[metadata]),
        f"CIFAR-10, {kind} label noise {percent} % on 49,000 training images; 1,000 clean images are metadata.",
    )


TASKS.register("cifar10")(cifar10)
for _ratio in (100, 10):
    TASKS.register(f"cifar10_lt_{_ratio}")(partial(cifar10_lt, ratio=_ratio, meta=False))
    TASKS.register(f"cifar10_lt_{_ratio}_meta")(partial(cifar10_lt, ratio=_ratio, meta=True))
for _percent in (40, 60):
    TASKS.register(f"cifar10_uniform_{_percent}")(partial(cifar10_noise, kind="uniform", percent=_percent))
for _percent in (20, 40):
    TASKS.register(f"cifar10_flip_{_percent}")(partial(cifar10_noise, kind="flip2", percent=_percent))


def _task(name: str, data: Cifar10Images, train: Split, metadata: Split | None, description: str) -> Task:
    return Task(
        name=name,
        num_classes=len(CLASSES),
        train=train,
        validation=None,
        test=data.test,
        metadata=metadata,
        class_names=CLASSES,
        input_shape=(3, 32, 32),
        default_model="resnet32",
        description=f"{description} No validation set, as in the literature: report the last epoch.",
    )


def load_cifar10(root: Path | None) -> Cifar10Images:
    """Everything of CIFAR-10, decoded once in a process."""
    return _load_folder(find_folder(root, "CIFAR-10", LAYOUTS, FILES, HOME).resolve())


@lru_cache(maxsize=1)  # decoding takes seconds, and a benchmark asks for many tasks made of the same images
def _load_folder(folder: Path) -> Cifar10Images:
    arrays = read_grids(folder) if (folder / "manifest.json").is_file() else read_batches(folder)
    source = ImageArray(arrays.train_images, MEAN, STD, crop_padding=4, flip=True)
    test_source = ImageArray(arrays.test_images, MEAN, STD)
    test_labels = torch.from_numpy(arrays.test_labels)
    test = Split(test_source, torch.arange(len(test_labels)), test_labels)
    return Cifar10Images(source, torch.from_numpy(arrays.train_labels), test)
