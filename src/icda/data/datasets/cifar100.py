"""CIFAR-100 from its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.datasets.cifar import CifarFamily, CifarImages
from icda.data.datasets.cifar10_files import DamagedDatasetError, load_arrays
from icda.data.roots import check_files, find_folder

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


def load_cifar100(root: Path | None) -> CifarImages:
    """Everything of CIFAR-100, decoded once in a process."""
    return load_folder(find_folder(root, "CIFAR-100", LAYOUTS, FILES, HOME).resolve())


@lru_cache(maxsize=1)
def load_folder(folder: Path) -> CifarImages:
    """Read the folder `cifar-100-python`, checked against the sums of the public archive."""
    content = read_files(folder, SUMS)
    train, test = (_arrays(content[name], folder / name) for name in ("train", "test"))
    names = [bytes(name).decode() for name in load_arrays(content["meta"], folder / "meta")[b"fine_label_names"]]
    return CifarImages.of(*train, *test, tuple(names))


def read_files(folder: Path, sums: Mapping[str, str]) -> dict[str, bytes]:
    """The bytes of a folder's files, refused where an MD5 sum is not the one given."""
    check_files(folder, "CIFAR-100", sums)
    content = {name: (folder / name).read_bytes() for name in sums}
    for name, expected in sums.items():
        check_sum = hashlib.md5(content[name], usedforsecurity=False).hexdigest()
        if check_sum != expected:
            raise DamagedDatasetError(
                f"{folder / name} has check sum {check_sum}, expected {expected}: fetch the file again."
            )
    return content


def _arrays(content: bytes, path: Path) -> tuple[np.ndarray, Tensor]:
    batch = load_arrays(content, path)
    # A row holds all red, then all green, then all blue values.
    images = np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), torch.tensor(batch[b"fine_labels"])


CifarFamily("cifar100", "CIFAR-100", load_cifar100).register()
