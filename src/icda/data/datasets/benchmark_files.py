"""What the public benchmarks' files share: CSV columns, numbers in them, lists of images, an official split."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.roots import DatasetNotFoundError
from icda.data.task import Source, Split
from icda.errors import InputError


class OfficialSplits(NamedTuple):
    """The three splits in the order in which files number them: 0, 1, 2."""

    train: Split
    validation: Split
    test: Split


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The cells of some columns of a CSV file with a header; the others, of which there may be dozens, are not kept."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [name for name in names if name not in header]
            if missing:
                raise InputError(f"{path} lacks {', '.join(missing)}: its columns are {', '.join(header) or 'none'}.")
            places = [header.index(name) for name in names]
            columns: list[list[str]] = [[] for _ in names]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, expected {len(header)} as in the header. "
                        "Fetch the file again."
                    )
                for column, place in zip(columns, places, strict=True):
                    column.append(row[place])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file in UTF-8: {error}.") from error
    if not columns[0]:
        raise InputError(f"{path} has a header and no rows: fetch the file again.")
    return dict(zip(names, columns, strict=True))


def numbered(path: Path, name: str, cells: Sequence[str], known: dict[str, int]) -> Tensor:
    """The number (N,) that `known` gives each cell of a column."""
    try:
        return torch.tensor([known[cell.strip()] for cell in cells], dtype=torch.long)
    except KeyError as error:
        raise InputError(f"{path}: {name} holds {error.args[0]!r}, expected {', '.join(known)}.") from error


def shares(path: Path, name: str, cells: Sequence[str], empty: str | None = None) -> np.ndarray:
    """A column of numbers in [0, 1]; `empty` is what an empty cell stands for, None refuses it."""
    filled = [cell.strip() or empty for cell in cells]
    if None in filled:
        raise InputError(f"{path}: {name} of row {filled.index(None) + 1} is empty, expected a number in [0, 1].")
    try:
        values = np.array(filled, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{path}: {name} must hold numbers: {error}.") from error
    outside = ~((values >= 0) & (values <= 1))
    if outside.any():
        row = int(outside.argmax())
        raise InputError(f"{path}: {name} of row {row + 1} is {filled[row]}, expected a number in [0, 1].")
    return values


def check_images(folder: Path, dataset: str, names: Sequence[str], home: str) -> list[Path]:
    """The paths of the images of a list, all of which are there."""
    # Folders are listed once: asking for each of 200,000 files takes far longer.
    present = {
        parent: {entry.name for entry in (folder / parent).iterdir()} if (folder / parent).is_dir() else set()
        for parent in {str(Path(name).parent) for name in names}
    }
    missing = [name for name in names if Path(name).name not in present[str(Path(name).parent)]]
    if missing:
        raise incomplete(dataset, folder, f"{len(missing)} of {len(names)} images, the first {missing[0]},", home)
    return [folder / name for name in names]


def incomplete(dataset: str, folder: Path, what: str, home: str) -> DatasetNotFoundError:
    """The error for a folder that has some of a dataset's files: what is missing, and who publishes it."""
    return DatasetNotFoundError(
        f"{dataset} in {folder.absolute()} is not complete: {what} missing. Expected: the files of {home}."
    )


def official_splits(
    source: Source, targets: Tensor, groups: Tensor, parts: Tensor, memberships: Tensor | None = None
) -> OfficialSplits:
    """Train, validation and test as `parts` (N,) numbers them; row i of the source has entry i of every other tensor."""

    def split(number: int) -> Split:
        rows = (parts == number).nonzero().flatten()
        belonging = None if memberships is None else memberships[rows]
        return Split(source, rows, targets[rows], groups[rows], memberships=belonging)

    return OfficialSplits(split(0), split(1), split(2))
