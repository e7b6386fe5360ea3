"""A CSV table of images or texts with their labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from icda.data.own.own_data import SPLIT_WORDS, OwnData, own_task, without_unreadable
from icda.data.sources import ImageFiles, TextArray, Tokenise
from icda.data.task import Source, Task
from icda.data.tokens import hash_tokenise
from icda.errors import InputError, MissingFileError
from icda.registry import did_you_mean

IMAGE = ("image", "path", "file", "filename", "image_path", "img_filename")
TEXT = ("text", "sentence", "comment", "comment_text")
LABEL = ("label", "class", "target", "y")
GROUP = ("group",)
ATTRIBUTE = ("attribute", "attr", "confounder")
SPLIT = ("split",)
LONGEST_NAME = 1000  # characters; a longer class or group is a text in the wrong column
NAMED_COLUMNS = 10
NUMBERED_SPLITS = {"0": "train", "1": "validation", "2": "test"}  # how WILDS and group_DRO number them


class CsvTable(NamedTuple):
    """A CSV file's cells by column, and the line in the file where each row ends."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """The cells of a column, none of them empty."""
        cells = [cell.strip() for cell in self.columns[name]]
        for cell, line in zip(cells, self.lines, strict=True):
            if not cell:
                raise InputError(f"{self.path}, line {line}: column {name!r} is empty. Fill it or drop the line.")
        return cells

    def names(self, name: str) -> list[str]:
        """The cells of a column of classes, groups or the like: none missing, none a text by mistake."""
        cells = self.column(name)
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

    def missing(self, roles: Sequence[str], candidates: Sequence[str]) -> InputError:
        """That no column can be recognised for any of `roles`, with the option that names it."""
        by_lower = {name.lower(): name for name in self.columns}
        hint = next((hint for name in candidates if (hint := did_you_mean(name, by_lower, by_lower.__getitem__))), "")
        options = " or ".join(f"--{role}-column ({role}_column= in Python)" for role in roles)
        return InputError(
            f"{self.path} has no {' or '.join(roles)} column by a usual name ({', '.join(candidates)}); it has "
            f"{self.described()}. {hint[:1].upper()}{hint[1:]}Name it with {options}."
        )

    def described(self) -> str:
        """The first names of the columns, and how many more there are."""
        names = list(self.columns)
        more = f" and {len(names) - NAMED_COLUMNS} more" if len(names) > NAMED_COLUMNS else ""
        return ", ".join(names[:NAMED_COLUMNS]) + more


def csv_task(
    path: str | PathLike[str],
    *,
    image_column: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    attribute_column: str | None = None,
    split_column: str | None = None,
    image_size: int = 32,
    tokenise: Tokenise | None = None,
    max_length: int = 128,
    seed: int = 0,
    flip: bool = True,
    skip_unreadable: bool = False,
    allow_outside: bool = False,
) -> Task:
    """A task from a table with a header: an image path (relative to the table) or a text, a label and, if known, more.

    Columns that are not named are recognised by their usual names. Groups come from a `group` column or, failing that,
    from label x `attribute`. `split` says train, validation (val), test or metadata, or 0, 1, 2 as in WILDS; a missing
    test split takes 20 % of train and a missing validation split 10 %, by `seed`; `description` says so. `tokenise`
    turns a list of texts into lists of ids; by default words and word pairs are hashed. Images must lie in the table's
    folder or below, unless `allow_outside` says that the table is trusted; `skip_unreadable` leaves out those that
    cannot be decoded.
    """
    table = read_table(Path(path).expanduser())
    label = table.find("label", label_column, LABEL)
    if label is None:
        raise table.missing(["label"], LABEL)
    labels = table.names(label)
    splits = split_values(table, table.find("split", split_column, SPLIT))
    groups, attributes = group_labels(table, labels, group_column, attribute_column)
    image, text = input_columns(table, image_column, text_column)
    if image is not None:
        source: Source = ImageFiles(image_paths(table, image, allow_outside), image_size, flip=flip)
        shape: tuple[int, ...] = (3, image_size, image_size)
        kind, model = "image", "resnet20"
    else:
        assert text is not None
        source = TextArray(table.column(text), tokenise or hash_tokenise, max_length)
        kind, shape, model = "text", (max_length,), "bag_of_words"
    data = OwnData(source, labels, splits, groups, attributes)
    if skip_unreadable and image is not None:
        data = without_unreadable(data)
    return own_task(table.path.stem, data, seed, input_kind=kind, input_shape=shape, model=model)


def read_table(path: Path) -> CsvTable:
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not a file: csv_task needs a CSV table with a header line.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = [name.strip() for name in next(reader, [])]
            rows = [(row, reader.line_num) for row in reader if row]
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not in UTF-8 (byte 0x{error.object[error.start]:02x}); tables from older programs are often in "
            "Latin-1. Save it as UTF-8 (spreadsheets call it 'CSV UTF-8'), or convert it: "
            f"iconv -f latin1 -t utf-8 {path.name} > new.csv"
        ) from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a CSV table: {error}.") from error
    if not rows or len(set(header)) < len(header):
        raise InputError(f"{path} needs a header line of distinct names and rows below it; its header is {header}.")
    for row, line in rows:
        if len(row) != len(header):
            raise InputError(f"{path}, line {line}: {len(row)} cells, expected {len(header)} as in the header.")
    columns = {name: [row[k] for row, _ in rows] for k, name in enumerate(header)}
    return CsvTable(path, columns, [line for _, line in rows])


def input_columns(table: CsvTable, image_column: str | None, text_column: str | None) -> tuple[str | None, str | None]:
    if image_column is not None and text_column is not None:
        raise InputError("csv_task takes an image_column or a text_column, not both.")
    image = None if text_column is not None else table.find("image", image_column, IMAGE)
    text = None if image_column is not None else table.find("text", text_column, TEXT)
    if image is None and text is None:
        raise table.missing(["image", "text"], IMAGE + TEXT)
    if image is not None and text is not None:
        raise InputError(
            f"{table.path} has images ({image!r}) and texts ({text!r}): choose with --image-column or --text-column "
            "(image_column= or text_column= in Python)."
        )
    return image, text


def image_paths(table: CsvTable, column: str, allow_outside: bool, *, check: bool = True) -> list[Path]:
    """The files that a column names, relative to the table; with `check` each of them must be there."""
    folder = table.path.parent.resolve()
    paths = []
    for cell, line in zip(table.column(column), table.lines, strict=True):
        path = _local_path(table.path.parent, cell)
        if not allow_outside and not path.resolve().is_relative_to(folder):
            raise InputError(
                f"{table.path}, line {line}: {cell} lies outside {folder}. A table of a stranger could read any file so; "
                "if you trust it, add --allow-outside (allow_outside=True in Python)."
            )
        if check and not path.is_file():
            raise MissingFileError(
                f"{table.path}, line {line}: there is no file {path.absolute()}. Paths are relative to the table."
            )
        paths.append(path)
    return paths


def _local_path(folder: Path, cell: str) -> Path:
    """A cell as a path; backslashes of Windows are understood where no file has one in its name."""
    path = folder / cell
    return path if "\\" not in cell or path.is_file() else folder / cell.replace("\\", "/")


def split_values(table: CsvTable, column: str | None) -> list[str]:
    if column is None:
        return ["train"] * len(table.lines)
    cells = [cell.lower() for cell in table.column(column)]
    # Only with a 2 among them are numbers surely splits in WILDS's sense; 0 and 1 alone could mean anything.
    known = {**SPLIT_WORDS, **(NUMBERED_SPLITS if "2" in cells else {})}
    for cell, line in zip(cells, table.lines, strict=True):
        if cell not in known:
            raise InputError(
                f"{table.path}, line {line}: split {cell!r} is not understood. Expected: {', '.join(SPLIT_WORDS)}; "
                "or 0, 1 and 2 for train, validation and test."
            )
    return [known[cell] for cell in cells]


def group_labels(
    table: CsvTable, labels: list[str], given: str | None, attribute: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """Groups, and the attributes they were made of with the labels; None for what the table does not say."""
    group = table.find("group", given, GROUP) if attribute is None or given is not None else None
    if group is not None:
        return table.names(group), None
    name = table.find("attribute", attribute, ATTRIBUTE)
    if name is None:
        return None, None
    attributes = table.names(name)
    return [f"{label}, {value}" for label, value in zip(labels, attributes, strict=True)], attributes
