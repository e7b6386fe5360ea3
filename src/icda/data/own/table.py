"""A CSV table of images or texts with their labels."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from icda.data.own.own_data import SPLIT_WORDS, OwnData, own_task
from icda.data.sources import ImageFiles, TextArray, Tokenise
from icda.data.task import Source, Task
from icda.data.tokens import hash_tokenise
from icda.errors import InputError, MissingFileError
from icda.registry import nearest

IMAGE = ("image", "path", "file", "filename", "image_path", "img_filename")
TEXT = ("text", "sentence", "comment", "comment_text")
LABEL = ("label", "class", "target", "y")
GROUP = ("group",)
ATTRIBUTE = ("attribute", "attr", "confounder")
SPLIT = ("split",)
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

    def find(self, role: str, given: str | None, candidates: Sequence[str]) -> str | None:
        """The column for `role`: the one the caller named, else the first whose name is one of `candidates`."""
        by_lower = {name.lower(): name for name in self.columns}
        if given is None:
            return next((by_lower[name] for name in candidates if name in by_lower), None)
        if given not in self.columns:
            guess = nearest(given, by_lower)
            hint = f"did you mean {by_lower[guess]!r}? " if guess else ""
            raise InputError(f"{self.path} has no {role} column {given!r}: {hint}It has {', '.join(self.columns)}.")
        return given

    def missing(self, role: str, candidates: Sequence[str]) -> InputError:
        by_lower = {name.lower(): name for name in self.columns}
        guess = next((match for name in candidates if (match := nearest(name, by_lower))), None)
        hint = f"did you mean {by_lower[guess]!r}? " if guess else ""
        return InputError(
            f"{self.path} has no {role} column: looked for {', '.join(candidates)}; it has {', '.join(self.columns)}. "
            f"{hint}Name it with {role}_column=..."
        )


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
) -> Task:
    """A task from a table with a header: an image path (relative to the table) or a text, a label and, if known, more.

    Columns that are not named are recognised by their usual names. Groups come from a `group` column or, failing that,
    from label x `attribute`. `split` says train, validation (val), test or metadata, or 0, 1, 2 as in WILDS; a missing
    test split takes 20 % of train and a missing validation split 10 %, by `seed`; `description` says so. `tokenise`
    turns a list of texts into lists of ids; by default words and word pairs are hashed.
    """
    table = read_table(Path(path).expanduser())
    label = table.find("label", label_column, LABEL)
    if label is None:
        raise table.missing("label", LABEL)
    labels = table.column(label)
    splits = split_values(table, table.find("split", split_column, SPLIT))
    groups, attributes = group_labels(table, labels, group_column, attribute_column)
    image, text = input_columns(table, image_column, text_column)
    if image is not None:
        source: Source = ImageFiles(_image_paths(table, image), image_size, flip=flip)
        shape: tuple[int, ...] = (3, image_size, image_size)
        kind, model = "image", "resnet20"
    else:
        assert text is not None
        source = TextArray(table.column(text), tokenise or hash_tokenise, max_length)
        kind, shape, model = "text", (max_length,), "bag_of_words"
    data = OwnData(source, labels, splits, groups, attributes)
    return own_task(table.path.stem, data, seed, input_kind=kind, input_shape=shape, model=model)


def read_table(path: Path) -> CsvTable:
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not a file: csv_task wants a CSV table with a header line.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = [name.strip() for name in next(reader, [])]
            rows = [(row, reader.line_num) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV table in UTF-8: {error}.") from error
    if not rows or len(set(header)) < len(header):
        raise InputError(f"{path} wants a header line of distinct names and rows below it; its header is {header}.")
    for row, line in rows:
        if len(row) != len(header):
            raise InputError(f"{path}, line {line}: {len(row)} cells, wanted {len(header)} as in the header.")
    columns = {name: [row[k] for row, _ in rows] for k, name in enumerate(header)}
    return CsvTable(path, columns, [line for _, line in rows])


def input_columns(table: CsvTable, image_column: str | None, text_column: str | None) -> tuple[str | None, str | None]:
    if image_column is not None and text_column is not None:
        raise InputError("csv_task takes an image_column or a text_column, not both.")
    image = None if text_column is not None else table.find("image", image_column, IMAGE)
    text = None if image_column is not None else table.find("text", text_column, TEXT)
    if image is None and text is None:
        raise table.missing("image or text", IMAGE + TEXT)
    if image is not None and text is not None:
        raise InputError(
            f"{table.path} has images ({image!r}) and texts ({text!r}): choose with image_column= or text_column=."
        )
    return image, text


def _image_paths(table: CsvTable, column: str) -> list[Path]:
    paths = [table.path.parent / cell for cell in table.column(column)]
    for path, line in zip(paths, table.lines, strict=True):
        if not path.is_file():
            raise MissingFileError(
                f"{table.path}, line {line}: there is no file {path.absolute()}. Paths are relative to the table."
            )
    return paths


def split_values(table: CsvTable, column: str | None) -> list[str]:
    if column is None:
        return ["train"] * len(table.lines)
    cells = [cell.lower() for cell in table.column(column)]
    # Only with a 2 among them are numbers surely splits in WILDS's sense; 0 and 1 alone could mean anything.
    known = {**SPLIT_WORDS, **(NUMBERED_SPLITS if "2" in cells else {})}
    for cell, line in zip(cells, table.lines, strict=True):
        if cell not in known:
            raise InputError(
                f"{table.path}, line {line}: split {cell!r} is not understood. Wanted: {', '.join(SPLIT_WORDS)}; "
                "or 0, 1 and 2 for train, validation and test."
            )
    return [known[cell] for cell in cells]


def group_labels(
    table: CsvTable, labels: list[str], given: str | None, attribute: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """Groups, and the attributes they were made of with the labels; None for what the table does not say."""
    group = table.find("group", given, GROUP) if attribute is None or given is not None else None
    if group is not None:
        return table.column(group), None
    name = table.find("attribute", attribute, ATTRIBUTE)
    if name is None:
        return None, None
    attributes = table.column(name)
    return [f"{label}, {value}" for label, value in zip(labels, attributes, strict=True)], attributes
