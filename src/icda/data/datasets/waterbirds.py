"""Waterbirds: birds pasted on land and water, where the background gives most training labels away."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from icda.data.registry import TASKS
from icda.data.roots import find_folder
from icda.data.sources import DECODER_THREADS, FeatureArray, ImageArray
from icda.data.task import Source, Split, Task
from icda.errors import InputError

HOME = "Waterbirds v1.0 of WILDS (Sagawa et al., ICLR 2020), for research use only"
FEATURES_FILE, IMAGES_FILE = "waterbirds_resnet50.npz", "waterbirds_64px.npz"
CLASSES = ("landbird", "waterbird")
GROUPS = ("landbird on land", "landbird on water", "waterbird on land", "waterbird on water")
SPLITS = ("train", "validation", "test")  # numbered 0, 1, 2 in the files
SIDE = 64
MEAN, STD = (0.4120, 0.4270, 0.3502), (0.2269, 0.2242, 0.2428)  # of the training images
NOTE = "For research use only."


@TASKS.register("waterbirds")
def waterbirds(root: Path | None, seed: int) -> Task:
    """Land bird or water bird, from 2,048 features of a frozen ImageNet ResNet-50; nothing here depends on the seed.

    The official split. In train 95 % of the birds stand before the background that goes with their class; validation
    and test show each class before both backgrounds equally often.
    """
    path = _path(root, FEATURES_FILE)
    source = _feature_source(path)
    shape = (source.features.shape[1],)
    return _task("waterbirds", path, source, "frozen ResNet-50 features", "features", shape, "linear")


@TASKS.register("waterbirds_64px")
def waterbirds_64px(root: Path | None, seed: int) -> Task:
    """The same birds as images of 64 x 64 pixels, in the same split; nothing here depends on the seed."""
    path = _path(root, IMAGES_FILE)
    return _task("waterbirds_64px", path, _image_source(path), "64 x 64 pixels", "image", (3, SIDE, SIDE), "resnet8")


def _task(name: str, path: Path, source: Source, story: str, kind: str, shape: tuple[int, ...], model: str) -> Task:
    arrays = _read_labels(path, len(source))
    targets = torch.from_numpy(arrays["y"].astype(np.int64))
    groups = 2 * targets + torch.from_numpy(arrays["place"].astype(np.int64))
    parts = torch.from_numpy(arrays["split"].astype(np.int64))

    def split(number: int) -> Split:
        rows = (parts == number).nonzero().flatten()
        return Split(source, rows, targets[rows], groups[rows])

    return Task(
        name=name,
        num_classes=len(CLASSES),
        train=split(0),
        validation=split(1),
        test=split(2),
        group_names=GROUPS,
        group_attributes=(0, 1, 0, 1),
        class_names=CLASSES,
        input_kind=kind,
        input_shape=shape,
        default_model=model,
        description=f"Waterbirds, {story}: in train 95 % of the birds stand before the background of their class, in "
        f"validation and test half of them. Official split. {NOTE}",
    )


def _path(root: Path | None, file: str) -> Path:
    return (find_folder(root, "Waterbirds", [("", file), ("waterbirds", file)], file, HOME) / file).resolve()


def _read_labels(path: Path, rows: int) -> dict[str, np.ndarray]:
    arrays = read_named(path, ("y", "place", "split"))
    for (name, values), top in zip(arrays.items(), (1, 1, 2), strict=True):
        if values.shape != (rows,):
            raise InputError(f"{path}: {name} must have one entry for each of {rows} samples, got {values.shape}.")
        if values.max() > top:
            raise InputError(f"{path}: {name} must lie in 0..{top}, it reaches {values.max()}.")
    return arrays


def read_named(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Some arrays of an .npz file; one that is missing is named."""
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in names if name not in file.files]
        if missing:
            raise InputError(f"{path} lacks {', '.join(missing)}: it holds {', '.join(file.files)}.")
        return {name: file[name] for name in names}


@lru_cache(maxsize=1)  # a benchmark asks for the same task many times
def _feature_source(path: Path) -> FeatureArray:
    return FeatureArray(read_named(path, ("feats",))["feats"].astype(np.float32))


@lru_cache(maxsize=1)
def _image_source(path: Path) -> ImageArray:
    arrays = read_named(path, ("blob", "offsets"))
    return ImageArray(decode_blob(arrays["blob"], arrays["offsets"]), MEAN, STD, crop_padding=4, flip=True)


def decode_blob(blob: np.ndarray, offsets: np.ndarray) -> Tensor:
    """Images (N, H, W, 3) as bytes from encoded ones laid end to end: image i is `blob[offsets[i]:offsets[i + 1]]`."""

    def decode(number: int) -> np.ndarray:
        data = blob[offsets[number] : offsets[number + 1]].tobytes()
        try:
            with Image.open(io.BytesIO(data)) as image:
                return np.asarray(image.convert("RGB"))
        except Exception as error:  # what a decoder raises on broken bytes depends on the format
            raise InputError(
                f"image {number} of the blob cannot be decoded ({error}): fetch the file again."
            ) from error

    with ThreadPoolExecutor(DECODER_THREADS) as pool:
        return torch.from_numpy(np.stack(list(pool.map(decode, range(len(offsets) - 1)))))
