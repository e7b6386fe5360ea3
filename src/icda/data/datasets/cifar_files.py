"""CIFAR from disk: the public pickled batches of CIFAR-10 and CIFAR-100, or lossless WebP grids of them."""

import hashlib
import io
import json
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from icda.data.registry import check_files
from icda.errors import IcdaError, InputError

TILE, TILES = 32, 50
# MD5, because that is what the public archives' files have always been listed with. The test file comes last.
BATCH_SUMS = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
FINE_SUMS = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
NAMES_SUMS = {"meta": "7973b15100ade9c7d40fb424638fde48"}


class CifarArrays(NamedTuple):
    """Images as bytes (N, 32, 32, 3) and labels as int64, in the original order.

    Where only a part of the training set is stored, `train_index` (N,) are its places among the `whole` published images.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...] = ()  # where the files name them
    train_index: np.ndarray | None = None
    whole: int | None = None


class DamagedDatasetError(InputError):
    """A file's content is not what its check sum says."""


class UntrustedFileError(IcdaError, pickle.UnpicklingError):
    """A file would run code when it is read."""


def read_batches(folder: Path, sums: Mapping[str, str | None] = BATCH_SUMS, labels: bytes = b"labels") -> CifarArrays:
    """Read a folder of pickled batches, the last for test; `sums` are the MD5 sums they must have, None checks none."""
    batches = read_pickles(folder, sums)
    # A row of a batch holds all red, then all green, then all blue values.
    images = [np.asarray(batch[b"data"]).reshape(-1, 3, TILE, TILE).transpose(0, 2, 3, 1) for batch in batches]
    targets = [np.asarray(batch[labels], dtype=np.int64) for batch in batches]
    train = np.ascontiguousarray(np.concatenate(images[:-1])), np.concatenate(targets[:-1])
    return CifarArrays(*train, np.ascontiguousarray(images[-1]), targets[-1])


def read_pickles(folder: Path, sums: Mapping[str, str | None]) -> list[Any]:
    """What is pickled in each of a folder's files, in the order of `sums`."""
    check_files(folder, "CIFAR", sums)
    loaded = []
    for name, expected in sums.items():
        content = (folder / name).read_bytes()
        if expected is not None:
            _check(folder / name, content, expected, "md5")
        loaded.append(load_arrays(content, folder / name))
    return loaded


def load_arrays(content: bytes, path: Path) -> Any:
    """Unpickle plain containers and NumPy arrays; anything else in the pickle is refused, since it could run code."""
    return _ArrayUnpickler(io.BytesIO(content), path).load()


class _ArrayUnpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        # Fetched from an array, because NumPy has moved the function's module between versions.
        reconstruct = np.empty(0).__reduce__()[0]
        admitted = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,
        }
        if (module, name) not in admitted:
            raise UntrustedFileError(
                f"{self._path} asks to load {module}.{name}; only NumPy arrays are admitted. Do not trust this file."
            )
        return admitted[module, name]


def read_grids(folder: Path) -> CifarArrays:
    """Read `train_*.webp`, `test_*.webp` (rows of 50 tiles) and `labels.npz`, checked against `manifest.json`."""
    manifest = json.loads((folder / "manifest.json").read_text())
    sums = manifest["files"] if "files" in manifest else manifest["sha256"]
    names = sorted(sums)
    check_files(folder, "CIFAR", [*names, "labels.npz"])
    with ThreadPoolExecutor(4) as pool:
        grids = pool.map(lambda name: _read_grid(folder / name, sums[name]), names)
        tiles = dict(zip(names, grids, strict=True))
    with np.load(folder / "labels.npz", allow_pickle=False) as stored:
        labels = dict(stored)
    arrays: list[np.ndarray] = []
    for part in ("train", "test"):
        images = np.concatenate([tiles[name] for name in names if name.startswith(part)])
        if len(images) < len(labels[part]):
            raise DamagedDatasetError(f"{folder} has {len(labels[part])} labels and {len(images)} images of {part}.")
        images = images[: len(labels[part])]  # the last row of tiles need not be full
        for file, kind, content in (
            ("labels.npz", "labels_sha256_uint8", labels[part]),
            ("*.webp", "sha256_uint8_NHWC", images),
        ):
            if f"{part}_{kind}" in manifest:
                _check(folder / file, content.tobytes(), manifest[f"{part}_{kind}"])
        arrays += [images, labels[part].astype(np.int64)]
    named = tuple(map(str, labels.get("names", ())))
    images, targets, test_images, test_targets = arrays
    return CifarArrays(images, targets, test_images, test_targets, named, labels.get("train_index"), manifest.get("of"))


def _read_grid(path: Path, expected: str) -> np.ndarray:
    _check(path, path.read_bytes(), expected)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    tiles = pixels.reshape(-1, TILE, TILES, TILE, 3).swapaxes(1, 2)
    return tiles.reshape(-1, TILE, TILE, 3)


def _check(path: Path, content: bytes, expected: str, kind: str = "sha256") -> None:
    check_sum = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if check_sum != expected:
        raise DamagedDatasetError(f"{path} has check sum {check_sum}, expected {expected}: fetch the file again.")
