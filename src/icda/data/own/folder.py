"""A folder of images, one subfolder per class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.own_data import SPLIT_WORDS, SPLITS
from icda.errors import InputError

LAYOUT = "<folder>/train/<class>/*.png (validation, test and metadata beside train), or <folder>/<class>/*.png"


class LabelledImages(NamedTuple):
    """The images below a folder, entry i of each list for image i; `was_split` says whether splits have folders."""

    paths: list[Path]
    labels: list[str]
    splits: list[str]
    was_split: bool


def labelled_images(root: Path, otherwise: str) -> LabelledImages:
    """Every image with its class and split; `otherwise` tells the owner of a folder without classes what to do."""
    folders = split_folders(root)
    images = LabelledImages([], [], [], was_split=any(folder != root for _, folder in folders))
    for split, folder in folders:
        for class_folder in subfolders(folder):
            paths = images_in(class_folder)
            if not paths:
                raise InputError(f"{class_folder} holds no image ({', '.join(IMAGE_SUFFIXES)}): fill or remove it.")
            images.paths.extend(paths)
            images.labels.extend([readable_name(class_folder.name)] * len(paths))
            images.splits.extend([split] * len(paths))
    if not images.paths:
        raise InputError(f"{root} has no class folders with images. Expected: {LAYOUT}. {otherwise}")
    return images


def split_folders(root: Path) -> list[tuple[str, Path]]:
    named = {folder: SPLIT_WORDS.get(folder.name.lower()) for folder in subfolders(root)}
    if not any(named.values()):
        return [("train", root)]
    if "train" not in named.values():
        raise InputError(f"{root} has {', '.join(folder.name for folder in named)} but no train folder.")
    for folder, split in named.items():
        if split is None and images_in(folder):
            raise InputError(
                f"{folder} stands beside train but is no split. Known: {', '.join(SPLITS)}. Rename it or move it away."
            )
    return [(split, folder) for folder, split in named.items() if split is not None]


def subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__")))


def readable_name(name: str) -> str:
    r"""A file's name as text that can be written anywhere; bytes in it that are not UTF-8 are shown as escapes.

    >>> print(readable_name("caf\udce9"), readable_name("na\u00efve"))
    caf\xe9 naïve
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def images_in(folder: Path) -> list[Path]:
    images = (entry for entry in folder.rglob("*") if entry.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(entry for entry in images if entry.is_file() and not entry.name.startswith("."))
