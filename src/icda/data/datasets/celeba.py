"""CelebA: is the hair blond? Nearly all blond people in it are women."""

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.data.datasets import benchmark_files as benchmark
from icda.data.generators import generator_for
from icda.data.images import central_square
from icda.data.own.table import read_table
from icda.data.registry import TASKS, find_folder
from icda.data.sources import IMAGENET, IMAGENET_MEAN, IMAGENET_STD, ImageFiles
from icda.data.splits import shuffled_by_class
from icda.data.task import Source, Task
from icda.errors import InputError

HOME = (
    "CelebA by the Multimedia Laboratory of the Chinese University of Hong Kong (Liu et al., ICCV 2015), for "
    "non-commercial research only"
)
FOLDERS = ("celeba", "celeba_v1.0", "celebA_v1.0", "celebA/data")  # torchvision, WILDS, group_DRO
ATTRIBUTES, PARTITION, IMAGES = "list_attr_celeba", "list_eval_partition", "img_align_celeba"
PARTS = {"0": 0, "1": 1, "2": 2}
TARGET, ATTRIBUTE = "Blond_Hair", "Male"
CLASSES = ("not blond", "blond")
GROUPS = ("not blond, female", "not blond, male", "blond, female", "blond, male")
FIRST_FILE, FEATURES_FILE = "celeba_10k_64px.npz", "celeba_10k_efficientnet_lite0.npz"
FOLDS = 5


@TASKS.register("celeba")
def celeba(root: Path | None, seed: int) -> Task:
    """Blond or not, 224 x 224 pixels, official partition; nothing here depends on the seed.

    Sagawa et al., "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020: the centre square of 178
    pixels, resized; no augmentation. Groups are hair x sex; of 162,770 training images 1,387 show blond men.
    """
    return _task("celeba", root, 224, "resnet20")


@TASKS.register("celeba_64px")
def celeba_64px(root: Path | None, seed: int) -> Task:
    """The same faces at 64 x 64 pixels, shifted by up to 4 and mirrored in training; the seed decides nothing."""
    return _task("celeba_64px", root, 64, "resnet8", crop_padding=4, flip=True)


def _task(name: str, root: Path | None, size: int, model: str, *, crop_padding: int = 0, flip: bool = False) -> Task:
    layouts = [(folder, ATTRIBUTES + end) for folder in FOLDERS for end in (".txt", ".csv")]
    files = f"{ATTRIBUTES} and {PARTITION}, both as .txt or both as .csv, and the folder {IMAGES}"
    folder = find_folder(root, "CelebA", layouts, files, HOME).resolve()
    _, labels = _read(folder)
    return benchmark.official_task(
        _source(folder, size, crop_padding, flip),
        *labels,
        name=name,
        class_names=CLASSES,
        group_names=GROUPS,
        input_shape=(3, size, size),
        default_model=model,
        description=f"CelebA, blond hair, {size} x {size} pixels: groups are hair x sex, and blond men are rare. "
        "Official partition. For non-commercial research only.",
    )


@lru_cache(maxsize=1)  # a benchmark asks for the same task many times
def _read(folder: Path) -> tuple[list[str], tuple[Tensor, Tensor, Tensor]]:
    """The images' names; their targets, attributes and parts."""
    end = ".txt" if (folder / f"{ATTRIBUTES}.txt").is_file() else ".csv"
    attributes, partition = folder / (ATTRIBUTES + end), folder / (PARTITION + end)
    if not partition.is_file():
        raise benchmark.incomplete("CelebA", folder, f"{partition.name} is", HOME)
    if end == ".txt":
        names, blond, male = _text_attributes(attributes)
        part_of = dict(zip(*benchmark.read_pairs(partition, PARTS), strict=True))
    else:
        names, blond, male = read_table(attributes, only=("image_id", TARGET, ATTRIBUTE)).columns.values()
        part_of = dict(zip(*read_table(partition, only=("image_id", "partition")).columns.values(), strict=True))
    if without := [name for name in names if name not in part_of]:
        raise InputError(f"{partition} says no partition for {len(without)} images, the first {without[0]}.")
    signs = {"-1": 0, "0": 0, "1": 1}
    marked = ((TARGET, blond), (ATTRIBUTE, male))
    targets, sexes = (benchmark.numbered(attributes, name, cells, signs) for name, cells in marked)
    parts = benchmark.numbered(partition, "partition", [part_of[name] for name in names], PARTS)
    return names, (targets, sexes, parts)


@lru_cache(maxsize=2)
def _source(folder: Path, size: int, crop_padding: int, flip: bool) -> ImageFiles:
    images = folder / IMAGES
    if (images / IMAGES).is_dir():  # as Kaggle's archive unpacks
        images = images / IMAGES
    if not images.is_dir():
        raise benchmark.incomplete("CelebA", folder, f"the folder {IMAGES} with the aligned images is", HOME)
    paths = benchmark.check_images(images, "CelebA", _read(folder)[0], HOME)
    return ImageFiles(paths, size, *IMAGENET, crop_padding, flip, prepare=central_square)


def _text_attributes(path: Path) -> tuple[list[str], list[str], list[str]]:
    """Image names and two attributes from the original file: a count, a line of names, then a line for each image."""
    names, blond, male = [], [], []
    with path.open(encoding="utf-8") as file:
        count, header = file.readline().strip(), file.readline().split()
        if missing := [name for name in (TARGET, ATTRIBUTE) if name not in header]:
            raise InputError(f"{path} lacks {', '.join(missing)}: its second line should name the 40 attributes.")
        target, attribute = 1 + header.index(TARGET), 1 + header.index(ATTRIBUTE)
        for row in filter(None, map(str.split, file)):
            if len(row) != len(header) + 1:
                raise InputError(f"{path}: {row[0]} has {len(row) - 1} attributes, expected {len(header)}.")
            names.append(row[0])
            blond.append(row[target])
            male.append(row[attribute])
    if count != str(len(names)):
        raise InputError(f"{path} is cut short: its first line says {count} images, it has {len(names)}.")
    return names, blond, male


def celeba_10k_fold(root: Path | None, seed: int, *, fold: int, features: bool = False) -> Task:
    """One of five folds of the first 10,000 images at 64 x 64 pixels, or of their features; the seed decides nothing.

    All lie in the official training part, so we split them: a fold is the test split, the next one validation. Each
    group is dealt out evenly, so that each of the 81 blond men is tested once: pool the worst group's figures over the
    folds.
    """
    images = _first_path(root, FIRST_FILE)
    arrays = benchmark.read_named(images, ("attributes", "attribute_names"))
    columns = [arrays["attribute_names"].tolist().index(name) for name in (TARGET, ATTRIBUTE)]
    targets, sexes = torch.from_numpy(arrays["attributes"][:, columns].astype(np.int64)).unbind(1)
    source: Source = (
        benchmark.packed_features(_first_path(root, FEATURES_FILE), "features")
        if features
        else benchmark.packed_images(images, IMAGENET_MEAN, IMAGENET_STD)
    )
    if len(source) != len(targets):
        raise InputError(f"CelebA: {FEATURES_FILE} has {len(source)} rows, {FIRST_FILE} {len(targets)}: make it again.")
    about: dict[str, Any] = {"input_shape": (3, 64, 64), "default_model": "resnet8"}
    if features:
        width = int(source.fetch(torch.tensor([0])).shape[1])
        about = {"input_kind": "features", "input_shape": (width,), "default_model": "linear"}
    return benchmark.official_task(
        source,
        targets,
        sexes,
        _fold_parts(2 * targets + sexes, fold),
        name=f"celeba_10k{'_features' if features else ''}_fold_{fold}",
        class_names=CLASSES,
        group_names=GROUPS,
        description=f"CelebA, blond hair, the first {len(targets):,} images at 64 x 64 pixels{', as features' * features}: "
        f"fold {fold} of {FOLDS} for test, the next for validation. Not the official partition. "
        "For non-commercial research only.",
        **about,
    )


for _fold in range(1, FOLDS + 1):
    TASKS.register(f"celeba_10k_fold_{_fold}")(partial(celeba_10k_fold, fold=_fold))
    TASKS.register(f"celeba_10k_features_fold_{_fold}")(partial(celeba_10k_fold, fold=_fold, features=True))


def _fold_parts(groups: Tensor, fold: int) -> Tensor:
    """0 train, 1 validation, 2 test of each sample (N,); every group is dealt out evenly."""
    number = torch.empty_like(groups)
    for positions in shuffled_by_class(groups, generator_for("celeba_10k folds")):
        number[positions] = torch.arange(len(positions)) % FOLDS
    after = (number - (fold - 1)) % FOLDS
    return torch.tensor([2, 1, *[0] * (FOLDS - 2)])[after]


def _first_path(root: Path | None, file: str) -> Path:
    made = "" if file == FIRST_FILE else f" (`python tools/celeba_features.py` makes it of {FIRST_FILE})"
    return (find_folder(root, "CelebA", [("", file), ("celeba", file)], file + made, HOME) / file).resolve()
