"""CIFAR-100: whole, long-tailed, and with wrong labels, as CIFAR-10 is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import corrupt_labels, noise_transition
from icda.data.datasets.cifar10 import MEAN, STD
from icda.data.datasets.cifar10_files import DamagedDatasetError, load_arrays
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import check_files, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

FOLDER = "cifar-100-python"
HOME = "the University of Toronto's CIFAR page (the archive 'CIFAR-100 python version', unpacked)"
FILES = f"the folder {FOLDER} with train, test and meta"
LAYOUTS = [(FOLDER, "train"), (f"cifar100/{FOLDER}", "train")]
# MD5, because that is what the public archive's files have always been listed with.
SUMS = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CLASSES, METADATA = 100, 10  # metadata: images a class, 1,000 in all under both protocols


class _Loaded(NamedTuple):
    source: ImageArray
    labels: Tensor
    test: Split
    names: tuple[str, ...]


def cifar100(root: Path | None, seed: int) -> Task:
    """All 50,000 training images; nothing here depends on the seed."""
    data = _load(root)
    return _task("cifar100", data, Split(data.source, torch.arange(len(data.labels)), data.labels), None, "unbiased")


def cifar100_lt(root: Path | None, seed: int, *, ratio: int, meta: bool) -> Task:
    """CIFAR-100-LT. With `meta`, ten images a class are first set aside as metadata, so classes are a bit smaller."""
    data = _load(root)
    aside = METADATA if meta else 0
    chosen = long_tail(data.labels, ratio, generator_for(seed, "cifar100_lt"), metadata_per_class=aside)
    metadata = None if chosen.metadata is None else Split(data.source, chosen.metadata, data.labels[chosen.metadata])
    train = Split(data.source, chosen.train, data.labels[chosen.train])
    name = f"cifar100_lt_{ratio}" + ("_meta" if meta else "")
    return _task(name, data, train, metadata, f"long-tailed {ratio}:1; the test set is balanced")


def cifar100_noise(root: Path | None, seed: int, *, kind: str, percent: int) -> Task:
    """CIFAR-100 with wrong labels by Meta-Weight-Net's protocol: 1,000 clean metadata images, 49,000 noisy ones."""
    data = _load(root)
    name = f"cifar100_{kind.rstrip('2')}_{percent}"
    generator = generator_for(seed, name)
    aside, rows = take_per_class(data.labels, [METADATA], generator)
    clean = data.labels[rows]
    noisy = corrupt_labels(clean, noise_transition(kind, CLASSES, percent / 100, generator), generator)
    train = Split(data.source, rows, noisy, clean_targets=clean)
    metadata = Split(data.source, aside, data.labels[aside])
    return _task(name, data, train, metadata, f"{kind} label noise {percent} % on 49,000 training images")


TASKS.register("cifar100")(cifar100)
for _ratio in (100, 10):
    for _meta in (False, True):
        TASKS.register(f"cifar100_lt_{_ratio}{'_meta' if _meta else ''}")(
            partial(cifar100_lt, ratio=_ratio, meta=_meta)
        )
for _kind, _percent in (("flip2", 20), ("flip2", 40), ("uniform", 40), ("uniform", 60)):
    TASKS.register(f"cifar100_{_kind.rstrip('2')}_{_percent}")(partial(cifar100_noise, kind=_kind, percent=_percent))


def _task(name: str, data: _Loaded, train: Split, metadata: Split | None, what: str) -> Task:
    return Task(
        name=name,
        num_classes=CLASSES,
        train=train,
        validation=None,
        test=data.test,
        metadata=metadata,
        class_names=data.names,
        input_shape=(3, 32, 32),
        default_model="resnet32",
        description=f"CIFAR-100, {what}. No validation set, as in the literature: report the last epoch.",
    )


def _load(root: Path | None) -> _Loaded:
    return load_folder(find_folder(root, "CIFAR-100", LAYOUTS, FILES, HOME).resolve())


@lru_cache(maxsize=1)
def load_folder(folder: Path) -> _Loaded:
    """Read the folder `cifar-100-python`, checked against the sums of the public archive."""
    content = read_files(folder, SUMS)
    images, labels = zip(*(_arrays(content[name], folder / name) for name in ("train", "test")), strict=True)
    names = [bytes(name).decode() for name in load_arrays(content["meta"], folder / "meta")[b"fine_label_names"]]
    test = Split(ImageArray(images[1], MEAN, STD), torch.arange(len(labels[1])), labels[1])
    return _Loaded(ImageArray(images[0], MEAN, STD, crop_padding=4, flip=True), labels[0], test, tuple(names))


def read_files(folder: Path, sums: Mapping[str, str]) -> dict[str, bytes]:
    """The bytes of a folder's files, refused where an MD5 sum is not the one given."""
    check_files(folder, "CIFAR-100", sums)
    content = {name: (folder / name).read_bytes() for name in sums}
    for name, expected in sums.items():
        found = hashlib.md5(content[name], usedforsecurity=False).hexdigest()
        if found != expected:
            raise DamagedDatasetError(
                f"{folder / name} has check sum {found}, wanted {expected}: fetch the file again."
            )
    return content


def _arrays(content: bytes, path: Path) -> tuple[np.ndarray, Tensor]:
    batch = load_arrays(content, path)
    # A row holds all red, then all green, then all blue values.
    images = np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), torch.tensor(batch[b"fine_labels"])
