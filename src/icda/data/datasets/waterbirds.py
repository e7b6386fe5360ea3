"""Waterbirds: birds pasted on land and water, where the background gives most training labels away."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.data.datasets import benchmark_files as benchmark
from icda.data.images import inner_square
from icda.data.own.table import read_table
from icda.data.registry import TASKS, find_folder
from icda.data.sources import IMAGENET, ImageFiles
from icda.data.task import Source, Task

HOME = "Waterbirds v1.0 of WILDS (Sagawa et al., ICLR 2020), for research use only"
FEATURES_FILE, IMAGES_FILE = "waterbirds_resnet50.npz", "waterbirds_64px.npz"
PUBLISHED, TABLE = "waterbird_complete95_forest2water2", "metadata.csv"
# WILDS, the archive of group_DRO, where group_DRO unpacks it
FOLDERS = ("waterbirds_v1.0", PUBLISHED, f"cub/data/{PUBLISHED}")
CLASSES = ("landbird", "waterbird")
GROUPS = ("landbird on land", "landbird on water", "waterbird on land", "waterbird on water")
TOPS = {"y": 1, "place": 1, "split": 2}  # the largest number of each column
SIDE, PUBLISHED_SIDE = 64, 224
MEAN, STD = (0.4120, 0.4270, 0.3502), (0.2269, 0.2242, 0.2428)  # of the training images


@TASKS.register("waterbirds")
def waterbirds(root: Path | None, seed: int) -> Task:
    """Land bird or water bird, from 2,048 features of a frozen ImageNet ResNet-50; nothing here depends on the seed."""
    path = _path(root, FEATURES_FILE)
    source = benchmark.packed_features(path, "feats")
    about = {"input_kind": "features", "input_shape": (source.features.shape[1],), "default_model": "linear"}
    return _task("waterbirds", source, _read_labels(path), "frozen ResNet-50 features", **about)


@TASKS.register("waterbirds_64px")
def waterbirds_64px(root: Path | None, seed: int) -> Task:
    """The same birds as images of 64 x 64 pixels, in the same split; nothing here depends on the seed."""
    path = _path(root, IMAGES_FILE)
    source = benchmark.packed_images(path, MEAN, STD)
    about = {"input_shape": (3, SIDE, SIDE), "default_model": "resnet8"}
    return _task("waterbirds_64px", source, _read_labels(path), "64 x 64 pixels", **about)


@TASKS.register("waterbirds_images")
def waterbirds_images(root: Path | None, seed: int) -> Task:
    """The birds of the published images at 224 x 224 pixels, official split; nothing here depends on the seed.

    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020: squeezed to 256 x 256 pixels,
    of which the middle 224 are kept; no augmentation.
    """
    layouts = [(folder, TABLE) for folder in FOLDERS]
    files = f"{TABLE} (img_filename, y, split, place) and the images it names"
    source, labels = _read_published(find_folder(root, "Waterbirds", layouts, files, HOME).resolve())
    about = {"input_shape": (3, PUBLISHED_SIDE, PUBLISHED_SIDE), "default_model": "resnet20"}
    return _task("waterbirds_images", source, labels, "224 x 224 pixels", **about)


def _task(name: str, source: Source, labels: tuple[Tensor, Tensor, Tensor], story: str, **about: Any) -> Task:
    return benchmark.official_task(
        source,
        *labels,
        name=name,
        class_names=CLASSES,
        group_names=GROUPS,
        description=f"Waterbirds, {story}: in train 95 % of the birds stand before the background of their class, in "
        "validation and test half of them. Official split. For research use only.",
        **about,
    )


def _path(root: Path | None, file: str) -> Path:
    return (find_folder(root, "Waterbirds", [("", file), ("waterbirds", file)], file, HOME) / file).resolve()


def _read_labels(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Targets, places and parts."""
    arrays = benchmark.read_named(path, tuple(TOPS))
    targets, places, parts = (torch.from_numpy(values.astype(np.int64)) for values in arrays.values())
    return targets, places, parts


@lru_cache(maxsize=1)
def _read_published(folder: Path) -> tuple[ImageFiles, tuple[Tensor, Tensor, Tensor]]:
    path = folder / TABLE
    columns = read_table(path, only=("img_filename", *TOPS)).columns
    targets, places, parts = (
        benchmark.numbered(path, name, columns[name], {str(number): number for number in range(top + 1)})
        for name, top in TOPS.items()
    )
    paths = benchmark.check_images(folder, "Waterbirds", columns["img_filename"], HOME)
    source = ImageFiles(paths, PUBLISHED_SIDE, *IMAGENET, crop_padding=0, flip=False, prepare=inner_square)
    return source, (targets, places, parts)
