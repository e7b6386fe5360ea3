"""CIFAR-10 from its folder, as batches or as grids."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch

from icda.data.datasets.cifar import CifarFamily, CifarImages
from icda.data.datasets.cifar10_files import BATCHES_FOLDER, read_batches, read_grids
from icda.data.roots import find_folder

HOME = "the University of Toronto's CIFAR page (the archive 'CIFAR-10 python version', unpacked)"
FILES = f"the folder {BATCHES_FOLDER} with data_batch_1 to data_batch_5 and test_batch"
LAYOUTS = [
    ("cifar10", "manifest.json"),
    (BATCHES_FOLDER, "data_batch_1"),
    (f"cifar10/{BATCHES_FOLDER}", "data_batch_1"),
]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load_cifar10(root: Path | None) -> CifarImages:
    """Everything of CIFAR-10, decoded once in a process."""
    return _load_folder(find_folder(root, "CIFAR-10", LAYOUTS, FILES, HOME).resolve())


@lru_cache(maxsize=1)  # decoding takes seconds, and a benchmark asks for many tasks made of the same images
def _load_folder(folder: Path) -> CifarImages:
    arrays = read_grids(folder) if (folder / "manifest.json").is_file() else read_batches(folder)
    labels, test_labels = torch.from_numpy(arrays.train_labels), torch.from_numpy(arrays.test_labels)
    return CifarImages.of(arrays.train_images, labels, arrays.test_images, test_labels, CLASSES)


CifarFamily("cifar10", "CIFAR-10", load_cifar10).register()
