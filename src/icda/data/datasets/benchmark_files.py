"""What the public benchmarks share: columns and lists of images that are checked, and official splits with groups."""

import io
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from icda.data.images import DECODER_THREADS
from icda.data.own.table import listed
from icda.data.registry import DatasetNotFoundError
from icda.data.sources import FeatureArray, ImageArray
from icda.data.splits import cut_splits
from icda.data.task import Source, Task
from icda.errors import InputError


def official_task(
    source: Source,
    targets: Tensor,
    attributes: Tensor,
    parts: Tensor,
    memberships: Tensor | None = None,
    *,
    class_names: tuple[str, ...],
    **about: Any,
) -> Task:
    """Two classes x a binary attribute, split as `parts` (N,) numbers it: 0 train, 1 validation, 2 test."""
    rows = {name: (parts == part).nonzero().flatten() for part, name in enumerate(("train", "validation", "test"))}
    splits = cut_splits(source, targets, 2 * targets + attributes, memberships, **rows)
    return Task(num_classes=2, class_names=class_names, **splits, group_attributes=(0, 1, 0, 1), **about)


def numbered(path: Path, name: str, cells: Sequence[str], known: dict[str, int]) -> Tensor:
    """The number (N,) that `known` gives each cell of a column."""
    try:
        return torch.tensor([known[cell.strip()] for cell in cells], dtype=torch.long)
    except KeyError as error:
        raise InputError(f"{path}: {name} holds {error.args[0]!r}, expected {', '.join(known)}.") from error


def read_pairs(path: Path, known: Collection[str]) -> tuple[list[str], list[str]]:
    """Images and what is said of each, from a list with a line "image value"; every value is one of `known`."""
    rows = [line.strip().rpartition(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    for number, (name, _, value) in enumerate(rows, 1):
        if (name or value) and not (name and value in known):
            said = f"{name} {value}".strip()
            raise InputError(f"{path}, line {number}: {said!r}, expected an image and one of {listed(list(known))}.")
    filled = [(name.strip(), value) for name, _, value in rows if name]
    return [name for name, _ in filled], [value for _, value in filled]


def shares(path: Path, name: str, cells: Sequence[str], empty: str = "") -> np.ndarray:
    """A column of numbers; `empty` is what an empty cell stands for, if anything."""
    try:
        return np.array([float(cell.strip() or empty) for cell in cells])
    except ValueError as error:
        raise InputError(f"{path}: {name} must hold a number in each row: {error}.") from error


def check_images(folder: Path, dataset: str, names: Sequence[str], home: str) -> list[Path]:
    """The paths of the images of a list, all of which are there."""
    # Folders are listed once: asking for each of 200,000 files takes far longer.
    present = {
        parent: {entry.name for entry in (folder / parent).iterdir()} if (folder / parent).is_dir() else set()
        for parent in {str(Path(name).parent) for name in names}
    }
    if missing := [name for name in names if Path(name).name not in present[str(Path(name).parent)]]:
        raise incomplete(dataset, folder, f"{len(missing)} of {len(names)} images, the first {missing[0]},", home)
    return [folder / name for name in names]


def incomplete(dataset: str, folder: Path, what: str, home: str) -> DatasetNotFoundError:
    """The error for a folder that has some of a dataset's files: what is missing, and who publishes it."""
    return DatasetNotFoundError(f"{dataset} in {folder.absolute()} is not complete: {what} missing. Home: {home}.")


def read_named(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Some arrays of an .npz file; one that is missing is named."""
    with np.load(path, allow_pickle=False) as file:
        if missing := [name for name in names if name not in file.files]:
            raise InputError(f"{path} lacks {', '.join(missing)}: it holds {', '.join(file.files)}.")
        return {name: file[name] for name in names}


@lru_cache(maxsize=2)  # a benchmark asks for the same task many times
def packed_images(path: Path, mean: tuple[float, ...], std: tuple[float, ...]) -> ImageArray:
    """The images of an .npz file, shifted by up to 4 pixels and mirrored in training."""
    arrays = read_named(path, ("blob", "offsets"))
    return ImageArray(decode_blob(arrays["blob"], arrays["offsets"]), mean, std, crop_padding=4, flip=True)


@lru_cache(maxsize=2)
def packed_features(path: Path, name: str) -> FeatureArray:
    return FeatureArray(read_named(path, (name,))[name].astype(np.float32))


def decode_blob(blob: np.ndarray, offsets: np.ndarray) -> Tensor:
    """Images (N, H, W, 3) as bytes from encoded ones laid end to end: image i is `blob[offsets[i]:offsets[i + 1]]`."""

    def decode(number: int) -> np.ndarray:
        data = blob[offsets[number] : offsets[number + 1]].tobytes()
        try:
            with Image.open(io.BytesIO(data)) as image:
                return np.asarray(image.convert("RGB"))
        except Exception as error:  # what a decoder raises on broken bytes depends on the format
            raise InputError(f"image {number} of the blob cannot be decoded ({error}): fetch it again.") from error

    with ThreadPoolExecutor(DECODER_THREADS) as pool:
        return torch.from_numpy(np.stack(list(pool.map(decode, range(len(offsets) - 1)))))
