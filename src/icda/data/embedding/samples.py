"""Which inputs there are, and what is known of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.folder import LAYOUT, images_in, labelled_images
from icda.data.own.table import LABEL, SPLIT, CsvTable, group_labels, image_paths, input_columns, read_table
from icda.errors import InputError, MissingFileError

ADVICE = "For images without classes: --unlabelled."


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or arrays of a file, to take; those left out are recognised by their usual names.

    `where` keeps rows, each "name=value". `fitted` are the columns that a model was fitted to: a table that has them is
    read by them, and nothing is guessed.
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
    fitted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Samples:
    """Inputs in a fixed order: entry i of each list is sample i's. `ids` are paths, or the row numbers of texts.

    Where groups are label x attribute, `attributes` holds the latter. `source` is the folder or table they were read
    from, `column` that of the paths or texts.
    """

    kind: Literal["image", "text"]
    inputs: Sequence[Path] | Sequence[str]
    ids: Sequence[str] | Sequence[int]
    labels: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    splits: Sequence[str] | None = None
    source: Path | None = None
    column: str | None = None
    attributes: Sequence[str] | None = None

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
    whole: bool = False,
) -> Samples:
    """The samples of a folder of images, one subfolder per class, or of a CSV table.

    No split is made where none is given. `unlabelled` takes every image below a folder whatever its subfolder, and a
    table without a label column. `allow_outside` trusts a table that names images outside its own folder. `advice` ends
    the error about a folder without classes. `whole` refuses a table with a missing image or an empty text.
    """
    root = Path(path).expanduser()
    if root.is_dir():
        if columns not in (None, Columns()):
            raise InputError(f"{root} is a folder: columns can be named only for a CSV table.")
        return _unlabelled_folder(root) if unlabelled else _folder(root, advice)
    if not root.is_file():
        raise MissingFileError(f"{root.absolute()} is not there. Expected: a CSV table, or a folder: {LAYOUT}.")
    if root.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{root} is one image. Expected: a CSV table, or a folder: {LAYOUT}.")
    return _table(read_table(root), columns or Columns(), unlabelled, allow_outside, whole)


def _folder(root: Path, advice: str) -> Samples:
    images = labelled_images(root, advice)
    splits = images.splits if images.was_split else None
    return Samples("image", images.paths, _relative(images.paths, root), images.labels, splits=splits, source=root)


def _unlabelled_folder(root: Path) -> Samples:
    paths = images_in(root)
    if not paths:
        raise InputError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES)}).")
    return Samples("image", paths, _relative(paths, root), source=root)


def _relative(paths: Sequence[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def _table(table: CsvTable, columns: Columns, unlabelled: bool, allow_outside: bool, whole: bool) -> Samples:
    labels = None if unlabelled else table.names(table.require("label", columns.labels, LABEL))
    groups, attributes = group_labels(table, labels, columns.groups, columns.attributes)
    split = table.find("split", columns.splits, SPLIT)
    known: dict[str, Any] = {"labels": labels, "groups": groups, "attributes": attributes, "source": table.path}
    known["splits"] = None if split is None else table.splits(split)
    image, text = input_columns(table, columns.image, columns.text)
    if image is not None:
        paths = image_paths(table, image, allow_outside, check=whole)
        return Samples("image", paths, table.column(image), column=image, **known)
    assert text is not None
    texts = table.column(text) if whole else [cell.strip() for cell in table.columns[text]]
    return Samples("text", texts, range(len(texts)), column=text, **known)
