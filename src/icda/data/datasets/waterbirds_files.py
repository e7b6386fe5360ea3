"""Waterbirds as it is published: a folder of images and metadata.csv."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from icda.data.datasets.benchmark_files import check_images, numbered, official_splits, read_columns
from icda.data.datasets.waterbirds import CLASSES, GROUPS, HOME, NOTE
from icda.data.prepared_images import PreparedImages, inner_square
from icda.data.registry import TASKS
from icda.data.roots import find_folder
from icda.data.task import Task

NAME, TABLE = "waterbird_complete95_forest2water2", "metadata.csv"
FOLDERS = ("waterbirds_v1.0", NAME, f"cub/data/{NAME}")  # WILDS, the archive of group_DRO, where group_DRO unpacks it
SIDE = 224


class _Published(NamedTuple):
    source: PreparedImages
    targets: Tensor
    places: Tensor
    parts: Tensor


@TASKS.register("waterbirds_images")
def waterbirds_images(root: Path | None, seed: int) -> Task:
    """The birds of the published images at 224 x 224 pixels, official split; nothing here depends on the seed.

    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020: squeezed to 256 x 256 pixels,
    of which the middle 224 are kept; no augmentation. Groups as in the tasks waterbirds and waterbirds_64px.
    """
    layouts = [(folder, TABLE) for folder in FOLDERS]
    files = f"{TABLE} (img_filename, y, split, place) and the images it names"
    source, targets, places, parts = _read(find_folder(root, "Waterbirds", layouts, files, HOME).resolve())
    return Task(
        name="waterbirds_images",
        num_classes=len(CLASSES),
        **official_splits(source, targets, 2 * targets + places, parts)._asdict(),
        group_names=GROUPS,
        group_attributes=(0, 1, 0, 1),
        class_names=CLASSES,
        input_shape=(3, SIDE, SIDE),
        default_model="resnet20",
        description=f"Waterbirds, {SIDE} x {SIDE} pixels: in train 95 % of the birds stand before the background of their "
        f"class, in validation and test half of them. Official split. {NOTE}",
    )


@lru_cache(maxsize=1)  # a benchmark asks for the same task many times
def _read(folder: Path) -> _Published:
    path = folder / TABLE
    columns = read_columns(path, ("img_filename", "y", "split", "place"))
    tops = {"y": 2, "place": 2, "split": 3}
    y, place, split = (
        numbered(path, name, columns[name], {str(number): number for number in range(top)})
        for name, top in tops.items()
    )
    paths = check_images(folder, "Waterbirds", columns["img_filename"], HOME)
    return _Published(PreparedImages(paths, SIDE, inner_square, crop_padding=0, flip=False), y, place, split)
