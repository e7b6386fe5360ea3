"""Which inputs there are, and what is known of each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.images import IMAGE_SUFFIXES
from icda.data.own import table as tables
from icda.errors import InputError, MissingFileError

LAYOUT = "<folder>/train/<class>/*.png (validation, test and metadata beside train), or <folder>/<class>/*.png"
ADVICE = "For images without classes: --unlabelled."


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or arrays of a file, to take; those left out are recognised by their usual names.

    `where` keeps rows, each "name=value". `fitted` are the columns that a model was fitted to, `array` the array: a file
    that has them is read by them, and nothing is guessed.
    """

    image: str | None = None
    text: str | None = None
    labels: str | None = None
    groups: str | None = None
    splits: str | None = None
    attributes: str | None = None
    features: str | None = None
    names: str | None = None
    where: tuple[str, ...] = ()
    unlabelled: bool = False  # whether labels are not looked for
    fitted: tuple[str, ...] | None = None
    array: str | None = None
    encode: bool = False  # words, truth values, dates and empty cells of a table become features, too
    plan: Any = None  # how a model's columns became features (icda.data.own.encoding.Plan)


@dataclass(frozen=True)
class Samples:
    """Inputs in a fixed order: entry i of each list is sample i's. `ids` are paths, or the row numbers of texts.

    Where groups are label x attribute, `attributes` holds the latter. `source` is the folder or table they were read
    from, `column` that of the paths or texts.
    """

    kind: Any  # "image" or "text", as an encoder reads them, or "features"
    inputs: Any  # (N,) paths, texts or the numbers of rows; or (N, A) features
    ids: Sequence[str] | Sequence[int]
    labels: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    splits: Sequence[str] | None = None
    source: Path | None = None
    column: str | None = None
    attributes: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def only(self, rows: Sequence[int]) -> Samples:
        """Some of the samples, all that is known of them with them."""
        lists = {name: getattr(self, name) for name in ("inputs", "ids", "labels", "groups", "splits", "attributes")}
        kept: Any = {name: [own[row] for row in rows] for name, own in lists.items() if own is not None}
        if isinstance(self.inputs, np.ndarray):
            kept["inputs"] = self.inputs[rows]
        return replace(self, **kept)

    def state(self, row: int) -> str:
        """What must be the same for an earlier result to be good: a text, or an image's name, size and time of change."""
        sample = self.inputs[row]
        if isinstance(sample, str):
            return sample
        try:
            status = sample.stat()
        except OSError:
            return f"{self.ids[row]} missing"
        return f"{self.ids[row]} {status.st_size} {status.st_mtime_ns}"

    def fingerprint(self, digests: Iterable[str]) -> str:
        """SHA-256 over what is known of the samples, and the digests of their inputs."""
        known = [*digests], [*self.ids], *(None if v is None else [*v] for v in (self.labels, self.groups, self.splits))
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def read_samples(
    path: str | PathLike[str],
    columns: Columns | None = None,
    *,
    unlabelled: bool = False,
    allow_outside: bool = False,
    advice: str = ADVICE,
    whole: bool = False,
) -> Samples:
    """The samples of a folder of images, one subfolder per class, or of a CSV table.

    `unlabelled` takes every image below a folder whatever its subfolder, and a table without a label column.
    `allow_outside` trusts a table or links that lead out of their folder. `advice` ends the error about a folder
    without classes. `whole` refuses a table with a missing image or an empty text.
    """
    root = Path(path).expanduser()
    if root.is_dir():
        named = columns or Columns()
        if any((named.image, named.text, named.labels, named.groups, named.splits, named.attributes)):
            raise InputError(f"{root} is a folder: columns can be named only for a CSV table.")
        samples = _images(images_in(root), root) if unlabelled else labelled_images(root, advice)
        if not len(samples):
            raise InputError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES)}).")
        if not allow_outside:
            _refuse_links(root, samples.inputs)
        return samples
    if not root.is_file():
        raise MissingFileError(f"{root.absolute()} is not there. Expected: a CSV table, or a folder: {LAYOUT}.")
    if root.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{root} is one image. Expected: a CSV table, or a folder: {LAYOUT}.")
    return _table(tables.read_table(root), columns or Columns(), unlabelled, allow_outside, whole)


def labelled_images(root: Path, otherwise: str) -> Samples:
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
    return _images(paths, root, labels=labels, splits=splits if was_split else None)


def split_folders(root: Path) -> list[tuple[str, Path]]:
    named = {folder: tables.SPLIT_WORDS.get(folder.name.lower()) for folder in subfolders(root)}
    if not any(named.values()):
        return [("train", root)]
    if "train" not in named.values():
        raise InputError(f"{root} has {', '.join(folder.name for folder in named)} but no train folder.")
    for folder, split in named.items():
        if split is None and images_in(folder):
            raise InputError(
                f"{folder} stands beside train but is no split. Known: {', '.join(tables.SPLITS)}. "
                "Rename it or move it away."
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
    return Samples("image", paths, [path.relative_to(root).as_posix() for path in paths], source=root, **known)


def _table(table: tables.CsvTable, columns: Columns, unlabelled: bool, allow_outside: bool, whole: bool) -> Samples:
    labels = None if unlabelled else table.names(table.require("label", columns.labels, tables.LABEL))
    groups, attributes = tables.group_labels(table, labels, columns.groups, columns.attributes)
    split = table.find("split", columns.splits, tables.SPLIT)
    known: dict[str, Any] = {"labels": labels, "groups": groups, "attributes": attributes, "source": table.path}
    known["splits"] = None
    if split is not None:
        known["splits"] = tables.split_names(table.column(split), str(table.path), table.lines)
    image, text = tables.input_columns(table, columns.image, columns.text)
    if image is not None:
        paths = tables.image_paths(table, image, allow_outside, check=whole)
        return Samples("image", paths, table.column(image), column=image, **known)
    assert text is not None
    texts = table.column(text) if whole else [cell.strip() for cell in table.columns[text]]
    return Samples("text", texts, range(len(texts)), column=text, **known)


def find_inputs(
    names: Sequence[str], embedding: Mapping[str, str], file: Path, given: Path | None = None
) -> Samples | None:
    """The images or texts behind `names`, from the folder or table that was given or that `icda embed` noted in the file.

    A file may be a stranger's: what it notes is used only if it lies beside the file, and a table only if it is, to the
    byte, the one that was embedded.
    """
    root = given if given is not None else _noted(embedding, file)
    if root is None:
        return None
    if not root.exists():
        raise MissingFileError(f"{root.absolute()} is not there: give the folder or table that `icda embed` read.")
    if root.is_dir():
        inside = [(root / name).resolve().is_relative_to(root.resolve()) for name in names]
        paths = [root / (name if own else "missing") for name, own in zip(names, inside, strict=True)]
        if given is not None and names and not any(path.is_file() for path in paths):
            raise InputError(
                f"{root} has none of the {len(names)} images that the features name, such as {names[0]}: give the folder "
                "that `icda embed` read."
            )
        return Samples("image", paths, names)
    table, column = tables.read_table(root), embedding.get("source_column")
    column = column if column in table.columns else table.find("text", None, (*tables.IMAGE, *tables.TEXT))
    if column is None:
        raise InputError(f"{root} has no column of images or texts. It has {table.described()}.")
    cells = table.columns[column]
    if all(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells[:5]):
        samples = read_samples(root, Columns(image=column), unlabelled=True)
        by_name = {str(name): Path(str(item)) for name, item in zip(samples.ids, samples.inputs, strict=True)}
        return Samples("image", [by_name.get(name, root / "missing") for name in names], names)
    rows = [int(name) if name.isdigit() else -1 for name in names]
    if not all(0 <= row < len(cells) for row in rows):
        raise InputError(f"{root} has {len(cells)} rows, and the features name others: give the table they are of.")
    return Samples("text", [cells[row].strip() for row in rows], names)


def _noted(embedding: Mapping[str, str], file: Path) -> Path | None:
    source = embedding.get("source")
    if not source:
        return None
    root = (file.parent / source).resolve()
    if not root.is_relative_to(file.parent.resolve()) or not root.exists():
        return None
    return root if root.is_dir() or embedding.get("source_sha256") == digest_of(root) else None


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
