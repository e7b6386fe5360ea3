"""From a path to samples: a folder of images, a table of images or texts, features in a file."""

import os
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.embedding.samples import Columns, Reads, Samples
from icda.data.images import IMAGE_SUFFIXES
from icda.data.missing import known_groups
from icda.data.own.encoding import kind_of
from icda.data.own.feature_files import FILES, read_features
from icda.data.own.table import (
    ATTRIBUTE,
    GROUP,
    IMAGE,
    LABEL,
    NAMES,
    SPLIT,
    SPLIT_WORDS,
    SPLITS,
    TEXT,
    CsvTable,
    image_paths,
    listed,
    read_table,
    split_names,
)
from icda.errors import InputError, MissingFileError

LAYOUT = "<folder>/train/<class>/*.png (validation, test and metadata beside train), or <folder>/<class>/*.png"
EXPECTED = f"Expected: a CSV table, or a folder: {LAYOUT}; or features in an .npz, .npy or .parquet."
ADVICE = "For images without classes: --unlabelled."
AMBIGUOUS = 2  # columns of numbers beside texts or paths from which the user is asked what is meant


def read_samples(
    path: str | PathLike[str], columns: Columns | None = None, *, advice: str = ADVICE, **named: Any
) -> Samples:
    """The samples of a folder of images, one subfolder per class, of a table, or of a file of features.

    `named` are fields of `Columns`. `advice` ends the error about a folder without classes.
    """
    asked, path = replace(columns or Columns(), **named), Path(path).expanduser()
    suffix, wanted = path.suffix.lower(), None if asked.reads is None else asked.reads.kind
    is_image = suffix in IMAGE_SUFFIXES
    if wanted not in (None, "image") and (path.is_dir() or is_image):
        described = f"{asked.reads.width} features" if wanted == "features" else f"{wanted}s"  # type: ignore[union-attr]
        raise InputError(
            f"{path} is {'an image' if is_image else 'a folder'}, and the model reads {described}: give a file of those."
        )
    if path.is_dir():
        _refuse_where(path, asked)
        return _of_folder(path, asked, advice)
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there. {EXPECTED}")
    if is_image:
        if not (asked.unlabelled and wanted):
            raise InputError(f"{path} is one image. {EXPECTED}")
        return Samples(Reads("image"), [path.name], [path])
    if suffix in FILES or asked.table or wanted == "features":
        return read_features(path, asked)
    table = read_table(path)
    if not holds_inputs(table, asked):
        return read_features(path, asked)
    _refuse_where(path, asked)
    return _of_inputs(table, asked)


def holds_inputs(table: CsvTable, asked: Columns) -> bool:
    """Whether a table names images or texts; else its columns of numbers are the features."""
    if any(said is not None for said in (asked.table, asked.reads, asked.image, asked.text)):
        return True
    found = [table.find(role, None, usual) for role, usual in (("image", IMAGE), ("text", TEXT))]
    raw = next((name for name in found if name is not None), None)
    if raw is None:
        return False
    answers = {*LABEL, *GROUP, *ATTRIBUTE, *SPLIT, *NAMES}
    numbers = [
        name
        for name, cells in table.columns.items()
        if name not in (raw, asked.labels, asked.groups) and name.lower() not in answers and kind_of(cells) == "number"
    ]
    if len(numbers) >= AMBIGUOUS:
        option = "--image-column" if raw == found[0] else "--text-column"
        raise InputError(
            f"{table.path} has a column {raw!r} and {len(numbers)} columns of numbers ({listed(numbers)}): which is it? "
            f"{option} {raw} fits a model of that column alone; --table fits one of all columns, and leaves {raw!r} out if "
            "it is free text."
        )
    return True


def _refuse_where(path: Path, asked: Columns) -> None:
    if asked.where:
        raise InputError(f"--where goes with a file of features or numbers; {path} has images or texts: leave it out.")


def _of_folder(root: Path, asked: Columns, advice: str) -> Samples:
    named = (asked.image, asked.text, asked.labels, asked.groups, asked.splits, asked.attributes)
    if asked.reads is None and any(named):
        raise InputError(f"{root} is a folder: columns can be named only for a CSV table.")
    samples = _images(images_in(root), root) if asked.unlabelled else _labelled_images(root, advice)
    if not len(samples):
        raise InputError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES)}).")
    if not asked.allow_outside:
        _refuse_links(root, samples.inputs)
    return samples


def _labelled_images(root: Path, otherwise: str) -> Samples:
    """Every image with its class and split; `otherwise` tells the owner of a folder without classes what to do."""
    folders = split_folders(root)
    paths: list[Path] = []
    labels: list[str] = []
    splits: list[str] = []
    for split, folder in folders:
        for class_folder in subfolders(folder):
            own = images_in(class_folder)
            if not own:
                raise InputError(f"{class_folder} holds no image ({', '.join(IMAGE_SUFFIXES)}): fill or remove it.")
            paths += own
            labels += [readable_name(class_folder.name)] * len(own)
            splits += [split] * len(own)
    if not paths:
        raise InputError(f"{root} has no class folders with images. Expected: {LAYOUT}. {otherwise}")
    was_split = any(folder != root for _, folder in folders)
    return _images(paths, root, labels=np.array(labels), splits=np.array(splits) if was_split else None)


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
    """A file's name as text that can be written anywhere; bytes in it that are not UTF-8 are shown as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def images_in(folder: Path) -> list[Path]:
    images = (entry for entry in folder.rglob("*") if entry.suffix.lower() in IMAGE_SUFFIXES)
    return sorted(entry for entry in images if entry.is_file() and not entry.name.startswith("."))


def _refuse_links(root: Path, paths: Sequence[Path]) -> None:
    """Refuse links out of a folder; a file's own link and those of the folders above it are looked at, each once."""
    place = root.resolve()
    folders = {folder for path in paths for folder in path.relative_to(root).parents}
    for path in (*(root / folder for folder in folders if folder.name), *paths):
        if path.is_symlink() and not path.resolve().is_relative_to(place):
            raise InputError(
                f"{path} is a link to {path.resolve()}, outside {root}. A stranger's folder could show any file so; if you "
                "trust it, add --allow-outside (allow_outside=True in Python)."
            )


def _images(paths: Sequence[Path], root: Path, **known: Any) -> Samples:
    return Samples(Reads("image"), [path.relative_to(root).as_posix() for path in paths], paths, source=root, **known)


def _of_inputs(table: CsvTable, asked: Columns) -> Samples:
    label = None if asked.unlabelled else table.require("label", asked.labels)
    known: dict[str, Any] = {"labels": None if label is None else table.values("labels", label), "source": table.path}
    group = attribute = None
    if asked.attributes is None or asked.groups is not None:
        group = table.find("group", asked.groups, GROUP)
    if group is None and label is not None:
        attribute = table.find("attribute", asked.attributes, ATTRIBUTE)
    for role, name in (("groups", group), ("attributes", attribute)):
        known[role] = None if name is None else known_groups(table.values("groups", name))
    split = table.find("split", asked.splits)
    if split is not None:
        known["splits"] = np.array(split_names(table.column(split), str(table.path), table.lines))
    kind, column = _input_column(table, asked)
    reads = Reads(kind, column=column, label=asked.labels, group=asked.groups)  # type: ignore[arg-type]
    if kind == "image":
        paths = image_paths(table, column, asked.allow_outside, check=asked.whole)
        return Samples(reads, table.column(column), paths, **known)
    texts = table.column(column) if asked.whole else [cell.strip() for cell in table.columns[column]]
    named = None if asked.reads is None else table.find("name", asked.names)
    ids = range(len(texts)) if named in (None, column) else table.columns[str(named)]
    return Samples(reads, ids, texts, **known)


def _input_column(table: CsvTable, asked: Columns) -> tuple[str, str]:
    """Whether a table holds images or texts, and in which column."""
    given = {"image": asked.image, "text": asked.text}
    if asked.reads is not None:
        kind, fitted = asked.reads.kind, asked.reads.column
        own = fitted if given[kind] is None and fitted in table.columns else given[kind]
        if (column := table.find(kind, own, TEXT if kind == "text" else IMAGE)) is not None:
            return kind, column
        called = "" if fitted is None else f" (in the fit it was called {fitted!r})"
        raise InputError(
            f"{table.path} has no column of {kind}s by a usual name, which the model reads{called}: name it with "
            f"--column (column= in Python). It has {listed(table.names)}."
        )
    if None not in given.values():
        raise InputError("a table is read for its images or for its texts: name one of the columns, not both.")
    image = None if asked.text is not None else table.find("image", asked.image, IMAGE)
    text = None if asked.image is not None else table.find("text", asked.text, TEXT)
    if image is not None and text is not None:
        raise InputError(
            f"{table.path} has images ({image!r}) and texts ({text!r}): choose with --image-column or --text-column."
        )
    if image is not None:
        return "image", image
    if text is not None:
        return "text", text
    raise table.missing(["image", "text"], IMAGE + TEXT)
