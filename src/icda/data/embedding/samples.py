"""Which inputs there are, and what is known of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.folder import LAYOUT, images_in, labelled_images
from icda.data.own.table import (
    GROUP,
    LABEL,
    SPLIT,
    CsvTable,
    group_labels,
    image_paths,
    input_columns,
    read_table,
    split_values,
)
from icda.errors import InputError, MissingFileError

ADVICE = "For images without classes: --unlabelled."


@dataclass(frozen=True)
class Columns:
    """Names of a CSV's columns; those left out are recognised by their usual names."""

    image: str | None = None
    text: str | None = None
    label: str | None = None
    group: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class Samples:
    """Inputs in a fixed order: entry i of each list is sample i's. `ids` are paths, or the row numbers of texts.

    `source` is the folder or table they were read from, `column` that of the paths or texts.
    """

    kind: Literal["image", "text"]
    inputs: Sequence[Path] | Sequence[str]
    ids: Sequence[str] | Sequence[int]
    labels: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    splits: Sequence[str] | None = None
    source: Path | None = None
    column: str | None = None

    def __len__(self) -> int:
        return len(self.inputs)

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
) -> Samples:
    """The samples of a folder, laid out as for `folder_task`, or of a CSV table, as for `csv_task`.

    No split is made where none is given. `unlabelled` takes every image below a folder whatever its subfolder, and a
    table without a label column. `allow_outside` trusts a table that names images outside its own folder. `advice` is what
    the error about a folder without classes says at its end.
    """
    root = Path(path).expanduser()
    if root.is_dir():
        if columns not in (None, Columns()):
            raise InputError(f"{root} is a folder: columns can be named only for a CSV table.")
        return replace(_unlabelled_folder(root) if unlabelled else _folder(root, advice), source=root)
    if not root.is_file():
        raise MissingFileError(f"{root.absolute()} is not there. Expected: a CSV table, or a folder: {LAYOUT}.")
    if root.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{root} is one image. Expected: a CSV table, or a folder: {LAYOUT}.")
    return replace(_table(read_table(root), columns or Columns(), unlabelled, allow_outside), source=root)


def _folder(root: Path, advice: str) -> Samples:
    images = labelled_images(root, advice)
    splits = images.splits if images.was_split else None
    return Samples("image", images.paths, _relative(images.paths, root), images.labels, splits=splits)


def _unlabelled_folder(root: Path) -> Samples:
    paths = images_in(root)
    if not paths:
        raise InputError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES)}).")
    return Samples("image", paths, _relative(paths, root))


def _relative(paths: Sequence[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def _table(table: CsvTable, columns: Columns, unlabelled: bool, allow_outside: bool) -> Samples:
    label = None if unlabelled else table.find("label", columns.label, LABEL)
    if label is None and not unlabelled:
        raise table.missing(["label"], LABEL)
    labels = None if label is None else table.names(label)
    if labels is not None:
        groups, _ = group_labels(table, labels, columns.group, None)
    else:
        group = table.find("group", columns.group, GROUP)
        groups = None if group is None else table.names(group)
    split = table.find("split", columns.split, SPLIT)
    splits = None if split is None else split_values(table, split)
    image, text = input_columns(table, columns.image, columns.text)
    if image is not None:
        paths = image_paths(table, image, allow_outside, check=False)
        return Samples("image", paths, table.column(image), labels, groups, splits, column=image)
    assert text is not None
    texts = [cell.strip() for cell in table.columns[text]]
    return Samples("text", texts, range(len(texts)), labels, groups, splits, column=text)
