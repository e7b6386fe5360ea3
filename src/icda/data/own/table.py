"""A CSV table of images, texts or numbers with their labels."""

import csv
import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from icda.errors import InputError, MissingFileError
from icda.limits import LONGEST_NAME
from icda.registry import did_you_mean

IMAGE = ("image", "path", "file", "filename", "image_path", "img_filename")
TEXT = ("text", "sentence", "comment", "comment_text")
LABEL = ("label", "class", "target", "y")
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


class CsvTable(NamedTuple):
    """A CSV file's cells by column, and the line in the file where each row ends."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def column(self, name: str, may_be_empty: bool = False) -> list[str]:
        """The cells of a column, none of them empty unless they may be."""
        cells = [cell.strip() for cell in self.columns[name]]
        if "" in cells and not may_be_empty:
            line = self.lines[cells.index("")]
            raise InputError(f"{self.path}, line {line}: column {name!r} is empty. Fill it or drop the line.")
        return cells

    def names(self, name: str, may_be_empty: bool = False) -> list[str]:
        """The cells of a column of classes, groups or the like: none missing, none a text by mistake."""
        cells = self.column(name, may_be_empty)
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
        return cells

    def find(self, role: str, given: str | None, candidates: Sequence[str]) -> str | None:
        """The column for `role`: the one the caller named, else the first whose name is one of `candidates`."""
        by_lower = {name.lower(): name for name in self.columns}
        if given is None:
            return next((by_lower[name] for name in candidates if name in by_lower), None)
        if given not in self.columns:
            hint = did_you_mean(given, by_lower, by_lower.__getitem__)
            raise InputError(f"{self.path} has no {role} column {given!r}: {hint}It has {self.described()}.")
        return given

    def require(self, role: str, given: str | None, candidates: Sequence[str]) -> str:
        """The same, where there must be one."""
        found = self.find(role, given, candidates)
        if found is None:
            raise self.missing([role], candidates)
        return found

    def missing(self, roles: Sequence[str], candidates: Sequence[str]) -> InputError:
        """That no column can be recognised for any of `roles`, with the option that names it."""
        by_lower = {name.lower(): name for name in self.columns}
        # A column that merely has letters of "target" in it, such as AGE, is no hint.
        near = next((name for usual in candidates if len(usual) > 3 for name in _near(usual, by_lower)), None)
        hint = "" if near is None else f"did you mean {by_lower[near]!r}? "
        options = " or ".join(f"--{role}-column" for role in roles)
        return InputError(
            f"{self.path} has no {' or '.join(roles)} column by a usual name ({', '.join(candidates)}); it has "
            f"{self.described()}. {hint[:1].upper()}{hint[1:]}Name it with {options} (Columns(...) in Python)."
        )

    def described(self) -> str:
        """The first names of the columns, and how many more there are."""
        return listed(list(self.columns))


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


def held_out_rows(splits: Iterable[object], origin: str) -> np.ndarray | None:
    """Which rows are of the test split; None if none is, or all are.

    >>> held_out_rows(["train", "test"], "a.csv").tolist(), held_out_rows([0, 1, 2], "a.npz").tolist()
    ([False, True], [False, False, True])
    """
    test = np.array([split == "test" for split in split_names(splits, origin)])
    return test if test.any() and not test.all() else None


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


def input_columns(table: CsvTable, image_column: str | None, text_column: str | None) -> tuple[str | None, str | None]:
    if image_column is not None and text_column is not None:
        raise InputError("a table is read for its images or for its texts: name one of the columns, not both.")
    image = None if text_column is not None else table.find("image", image_column, IMAGE)
    text = None if image_column is not None else table.find("text", text_column, TEXT)
    if image is None and text is None:
        raise table.missing(["image", "text"], IMAGE + TEXT)
    if image is not None and text is not None:
        raise InputError(
            f"{table.path} has images ({image!r}) and texts ({text!r}): choose with --image-column or --text-column."
        )
    return image, text


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


def group_labels(
    table: CsvTable, labels: list[str] | None, given: str | None, attribute: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """Groups, and the attributes they were made of with the labels; None for what the table does not say.

    A group that is not known is empty.
    """
    group = table.find("group", given, GROUP) if attribute is None or given is not None else None
    if group is not None:
        return crossed_groups(labels, table.names(group, may_be_empty=True))
    name = None if labels is None else table.find("attribute", attribute, ATTRIBUTE)
    if name is None or labels is None:
        return None, None
    attributes = table.names(name, may_be_empty=True)
    return [f"{label}, {value}" if value else "" for label, value in zip(labels, attributes, strict=True)], attributes


def crossed_groups(labels: Sequence[str] | None, given: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Groups as fit, train and eval judge them, class x attribute, and the attributes; the latter None if it is so already.

    A group of several classes is an attribute. Groups that hold one class each are class x attribute as they stand. An
    empty one is not known, and stays empty.

    >>> crossed_groups(["cat", "dog", "dog"], ["snow", "snow", "grass"])[0]
    ['cat, snow', 'dog, snow', 'dog, grass']
    >>> crossed_groups(["cat", "dog"], ["cat/snow", "dog/grass"])
    (['cat/snow', 'dog/grass'], None)
    """
    values = list(given)
    pairs = set() if labels is None else {pair for pair in zip(labels, values, strict=True) if pair[1]}
    if labels is None or len(pairs) == len(set(values) - {""}):
        return values, None
    return [f"{label}, {value}" if value else "" for label, value in zip(labels, values, strict=True)], values
