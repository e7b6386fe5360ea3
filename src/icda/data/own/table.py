"""Columns by their names, and the cells of a CSV table of images, texts or numbers with their labels."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from icda.errors import InputError, MissingFileError
from icda.limits import LONGEST_NAME
from icda.registry import did_you_mean

IMAGE = ("image", "path", "file", "filename", "image_path", "img_filename")
TEXT = ("text", "sentence", "comment", "comment_text")
FEATURES = ("features", "feats", "embeddings", "X", "x")
LABEL = ("label", "class", "target", "y")
LABELS = ("y", "labels", "label", "targets", "target", "class")  # of arrays and of Parquet
NAMES = ("id", "ids", "names", "name", "path", "paths", "img_id")
GROUP = ("group",)
ATTRIBUTE = ("attribute", "attr", "confounder")
SPLIT = ("split",)
SPLITS = ("train", "validation", "test", "metadata")
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("metadata", "meta"), "metadata"),
}
NAMED_COLUMNS = 10
CLOSE = 0.75  # of difflib: "lable" is, "age" for "target" is not
NUMBERED_SPLITS = {"0": "train", "1": "validation", "2": "test"}  # how WILDS and group_DRO number them


class ColumnFile:
    """A file with named columns, or arrays; `usual` are the names by which they are recognised."""

    path: Any
    names: Sequence[str]
    holds: ClassVar[str] = "column"
    usual: ClassVar[Mapping[str, Sequence[str]]] = {"label": LABELS, "name": NAMES, "split": SPLIT}
    fold: ClassVar[Callable[[str], str]] = str  # what is the same in two spellings of a usual name

    def find(self, role: str, given: str | None, usual: Sequence[str] | None = None) -> str | None:
        """The column for `role`: the one the caller named, else the first that has a usual name."""
        known = {type(self).fold(name): name for name in self.names}
        if given is None:
            candidates = self.usual.get(role, ()) if usual is None else usual
            return next((known[name] for name in candidates if name in known), None)
        if given not in self.names:
            hint = did_you_mean(given, known, known.__getitem__)
            raise InputError(f"{self.path} has no {role} {self.holds} {given!r}: {hint}It has {listed(self.names)}.")
        return given

    def require(self, role: str, given: str | None) -> str:
        """The same, where there must be one."""
        found = self.find(role, given)
        if found is None:
            raise self.missing([role], self.usual[role])
        return found

    def missing(self, roles: Sequence[str], usual: Sequence[str]) -> InputError:
        """That no column can be recognised for any of `roles`, with the option that names it."""
        known = {name.lower(): name for name in self.names}
        # A column that merely has letters of "target" in it, such as AGE, is no hint.
        near = next((name for one in usual if len(one) > 3 for name in _near(one, known)), None)
        hint = "" if near is None else f"Did you mean {known[near]!r}? "
        options = " or ".join("--features" if role == "features" else f"--{role}-column" for role in roles)
        return InputError(
            f"{self.path} has no {' or '.join(roles)} {self.holds} by a usual name ({', '.join(usual)}); it has "
            f"{listed(self.names)}. {hint}Name it with {options} (Columns(...) in Python)."
        )


class CsvTable(ColumnFile):
    """A CSV file's cells by column, and the line in the file where each row ends; `whole` is what rows were taken of."""

    usual: ClassVar = {"label": LABEL, "name": NAMES, "split": SPLIT}
    fold = str.lower

    def __init__(self, path: Path, columns: dict[str, list[str]], lines: list[int], whole: CsvTable | None = None):
        self.path, self.columns, self.lines, self.whole = path, columns, lines, whole or self
        self.names = list(columns)

    def __len__(self) -> int:
        return len(self.lines)

    def only(self, rows: Sequence[int]) -> CsvTable:
        """Some of the rows."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return CsvTable(self.path, columns, [self.lines[row] for row in rows], self)

    def column(self, name: str, may_be_empty: bool = False) -> list[str]:
        """The cells of a column, none of them empty unless they may be."""
        cells = [cell.strip() for cell in self.columns[name]]
        if "" in cells and not may_be_empty:
            line = self.lines[cells.index("")]
            raise InputError(f"{self.path}, line {line}: column {name!r} is empty. Fill it or drop the line.")
        return cells

    def values(self, role: str, name: str) -> np.ndarray:
        """The cells of a column. Labels and groups, which may be empty: none missing, none a text by mistake."""
        if role not in ("labels", "groups"):
            return as_objects(self.columns[name])
        cells = self.column(name, may_be_empty=role == "groups")
        for cell, line in zip(cells, self.lines, strict=True):
            if cell.lower() == "nan":
                raise InputError(
                    f"{self.path}, line {line}: column {name!r} says {cell!r}, which stands for a missing value in many "
                    "tables. Fill it or drop the line; if it is a name, choose another."
                )
            if len(cell) > LONGEST_NAME:
                raise InputError(
                    f"{self.path}, line {line}: column {name!r} holds {len(cell)} characters, too many for a name "
                    f"(at most {LONGEST_NAME}). Is it the column of texts?"
                )
        return np.array(cells)

    def list_column(self, fitted: Sequence[str] | None) -> None:
        """No cell holds a list of features."""

    def numeric(self, names: Sequence[str]) -> Sequence[str]:
        """The columns that may hold numbers: which of them do not is found when they are read."""
        return names

    def is_plain(self, names: Sequence[str]) -> bool:
        """Whether all cells of some columns are numbers."""
        return all(is_number(cell) for name in names for cell in self.columns[name])

    def cells(self, names: Sequence[str]) -> dict[str, list[str]]:
        return {name: self.columns[name] for name in names}

    def numbering(self, names: Iterable[str]) -> list[str]:
        """The columns that only number the rows, those that are not kept among them."""
        plain = {name: self.whole.columns[name] for name in names if all(map(is_number, self.whole.columns[name]))}
        return [name for name, cells in plain.items() if is_index(name, np.array(cells, dtype=np.float64))]


def as_objects(cells: Sequence[object]) -> np.ndarray:
    """As objects: one long text would make a NumPy text column as wide for every row."""
    return np.array(cells, dtype=object)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_index(name: str, values: np.ndarray) -> bool:
    """Whether a column only numbers the rows: consecutive whole numbers in any order, or a name that pandas gives.

    Rows that were once sorted by class would give the label away.
    """
    if not name or name.lower().startswith(("unnamed", "__index_level_")):
        return True
    if len(values) < 3 or not np.isfinite(values).all():
        return False
    return bool((np.diff(np.sort(values)) == 1).all()) and float(values[0]).is_integer()


def _near(usual: str, names: Iterable[str]) -> list[str]:
    """Names with a usual one among their words ("target_class", not "workclass"), or a slip of the pen away from it."""
    known = list(names)
    return [name for name in known if usual in re.split(r"[\W_]+", name)] or difflib.get_close_matches(
        usual, known, 1, CLOSE
    )


def split_names(values: Iterable[object], origin: str, lines: Sequence[int] = ()) -> list[str]:
    """The split of each row by the name that icda has for it; `lines` say where in the file the rows stand.

    Of 0 and 1 alone, 1 might be the test: refused. One number for all rows is what `--where split=0` leaves.

    >>> split_names(["Training", "val"], "a.csv"), split_names([0, 1, 2], "a.npz")
    (['train', 'validation'], ['train', 'validation', 'test'])
    """
    words = [str(value).strip().lower() for value in values]
    known = {**SPLIT_WORDS, **(NUMBERED_SPLITS if "2" in words or len(set(words)) == 1 else {})}
    for row, word in enumerate(words):
        if word not in known:
            raise InputError(
                f"{origin}{f', line {lines[row]}' if lines else ''}: split {word!r} is not understood. Expected: "
                f"{', '.join(SPLITS)}; or 0, 1 and 2. Rename it, or the column if it means something else."
            )
    return [known[word] for word in words]


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names, sorted; as numbers if all of them are numbers."""
    distinct = sorted(set(names))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def listed(names: Sequence[str]) -> str:
    """The first of many names."""
    shown = [name or "(no name)" for name in names]
    if len(shown) <= NAMED_COLUMNS:
        return ", ".join(shown)
    # The last one is often the label.
    return f"{', '.join(shown[:NAMED_COLUMNS])} and {len(shown) - NAMED_COLUMNS} more, the last {shown[-1]}"


def read_table(path: Path, only: Sequence[str] | None = None) -> CsvTable:
    """All columns, or those of `only`, which must be there: the others, of which there may be dozens, are not kept.

    A column that stands there twice under one name, with the same cells, counts once.
    """
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not a file: give a CSV table with a header line.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = [name.strip() for name in next(reader, [])]
            if missing := [name for name in only or () if name not in header]:
                raise InputError(f"{path} lacks {', '.join(missing)}: its columns are {', '.join(header) or 'none'}.")
            columns: dict[str, list[str]] = {name: [] for name in (header if only is None else only)}
            places = {name: header.index(name) for name in columns}
            doubled = {place: header.index(name) for place, name in enumerate(header) if header.index(name) < place}
            lines = []
            for row in filter(None, reader):
                if len(row) != len(header):
                    raise InputError(f"{path}, line {reader.line_num}: {len(row)} cells, expected {len(header)}.")
                for place, first_place in doubled.items():
                    if row[place] != row[first_place]:
                        raise InputError(
                            f"{path} needs distinct names in its header: two columns are called {header[place]!r}, and "
                            f"differ in line {reader.line_num} ({row[first_place]!r}, {row[place]!r}). Rename or drop one."
                        )
                lines.append(reader.line_num)
                for name, place in places.items():
                    columns[name].append(row[place])
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not in UTF-8 (byte 0x{error.object[error.start]:02x}); tables from older programs are often in "
            "Latin-1. Save it as UTF-8 (spreadsheets call it 'CSV UTF-8'), or convert it: "
            f"iconv -f latin1 -t utf-8 {path.name} > new.csv"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV table: {error}.") from error
    if not lines:
        raise InputError(f"{path} needs a header line and rows below it; it has {listed(header) or 'nothing'}.")
    return CsvTable(path, columns, lines)


def image_paths(table: CsvTable, column: str, allow_outside: bool, *, check: bool = True) -> list[Path]:
    """The files that a column names, relative to the table; with `check` each of them must be there."""
    folder = table.path.parent.resolve()
    paths = []
    for cell, line in zip(table.column(column), table.lines, strict=True):
        path = table.path.parent / cell
        if "\\" in cell and not path.is_file():  # as Windows writes it
            path = table.path.parent / cell.replace("\\", "/")
        if not allow_outside and not path.resolve().is_relative_to(folder):
            raise InputError(
                f"{table.path}, line {line}: {cell} lies outside {folder}. A table of a stranger could read any file so; "
                "if you trust it, add --allow-outside (allow_outside=True in Python)."
            )
        if check and not path.is_file():
            raise MissingFileError(
                f"{table.path}, line {line}: there is no file {path.absolute()} (relative to the table)."
            )
        paths.append(path)
    return paths


def crossed_groups(
    labels: Sequence[str] | None, given: Sequence[str], are_attributes: bool = False
) -> tuple[list[str], list[str] | None]:
    """Groups as fit, train and eval judge them, class x attribute, and the attributes; the latter None if it is so already.

    A group of several classes is an attribute. Groups that hold one class each are class x attribute as they stand, unless
    they are said to be attributes. An empty one is not known, and stays empty.

    >>> crossed_groups(["cat", "dog", "dog"], ["snow", "snow", "grass"])[0]
    ['cat, snow', 'dog, snow', 'dog, grass']
    >>> crossed_groups(["cat", "dog"], ["cat/snow", "dog/grass"])
    (['cat/snow', 'dog/grass'], None)
    """
    values = list(given)
    pairs = set() if labels is None else {pair for pair in zip(labels, values, strict=True) if pair[1]}
    if labels is None or (len(pairs) == len(set(values) - {""}) and not are_attributes):
        return values, None
    return [f"{label}, {value}" if value else "" for label, value in zip(labels, values, strict=True)], values
