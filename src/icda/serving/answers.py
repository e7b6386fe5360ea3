"""What a person answered: a table of samples with their group and, where it was wrong, their label."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from icda.data.embedding.samples import Samples
from icda.data.missing import is_missing
from icda.errors import InputError, MissingFileError
from icda.registry import did_you_mean
from icda.results.files import write_atomically
from icda.results.foreign_text import safe_cell, write_csv
from icda.serving.folder import ANSWERS

COLUMNS = ("sample", "group", "label")


@dataclass(frozen=True)
class SampleAnswer:
    """About one sample; an empty group says that the person could not tell, an empty label that it is right."""

    group: str = ""
    label: str = ""


Answers = Mapping[str, SampleAnswer]  # by the sample's name


def read_answers(path: Path) -> dict[str, SampleAnswer]:
    """Read a table that the page of `icda ask` saved, or that somebody wrote by hand."""
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: the page of `icda ask` saves {ANSWERS}.")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return parse_answers(file, str(path))


def parse_answers(file: TextIO, origin: str) -> dict[str, SampleAnswer]:
    """Answers by the sample's name, which may be any text."""
    try:
        reader = csv.DictReader(file, strict=True)
        missing = [name for name in COLUMNS[:2] if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{origin}: no column {missing[0]!r}. Answers have the columns {', '.join(COLUMNS)}.")
        answers: dict[str, SampleAnswer] = {}
        for row in reader:
            sample, group, label = ((row.get(name) or "") for name in COLUMNS)
            if sample in answers:
                raise InputError(f"{origin}, line {reader.line_num}: {sample!r} was answered before: keep one line.")
            answers[sample] = SampleAnswer(_as_typed(group), _as_typed(label))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{origin} is no table of answers ({error}).") from error
    return answers


def _as_typed(cell: str) -> str:
    """Without the apostrophe that keeps a spreadsheet from taking a cell for a formula."""
    cell = cell.strip()
    return cell[1:] if cell[:1] == "'" and safe_cell(cell[1:]) == cell else cell


def write_answers(path: Path, answers: Answers) -> None:
    """Write the table; cells are safe for spreadsheets."""
    file = io.StringIO(newline="")
    rows = [{"sample": name, "group": one.group, "label": one.label} for name, one in answers.items()]
    write_csv(file, COLUMNS, rows)
    write_atomically(path, file.getvalue().encode(), new_folder=True)


def with_answers(data: Samples, answers: Answers, origin: str) -> Samples:
    """The data with the groups and labels that a person named; other groups stay as they are."""
    rows = rows_of(data.names, answers, origin)
    counts = sum(bool(one.group) for one in rows.values()), sum(bool(one.label) for one in rows.values())
    labels, groups = data.labels.astype(object), np.full(len(data), None, dtype=object)
    groups[:] = data.groups
    known = {str(label): label for label in data.labels.tolist()}
    for row, answer in rows.items():
        if answer.group:
            groups[row] = answer.group
        if answer.label:
            if answer.label not in known:
                hint = did_you_mean(answer.label, known)
                raise InputError(
                    f"{origin}: {data.names[row]!r} is said to be {answer.label!r}, which is no class. {hint}"
                )
            labels[row] = known[answer.label]
    known_groups = np.array([None if is_missing(group) else str(group) for group in groups.tolist()], dtype=object)
    named = None if all(group is None for group in known_groups) else known_groups
    return replace(data, labels=labels.astype(data.labels.dtype), groups=named, answered=counts)


def rows_of(names: Sequence[str], answers: Answers, origin: str) -> dict[int, SampleAnswer]:
    """The answers by row; a name may have been made safe for a spreadsheet on its way."""
    places: dict[str, int] = {}
    repeated = set()
    for row, name in enumerate(names):
        for known in {name, str(safe_cell(name))}:
            repeated |= {known} & places.keys()
            places[known] = row
    found = {}
    for name, answer in answers.items():
        if name not in places:
            raise InputError(f"{origin} names the sample {name!r}, which the data do not have: are they the same data?")
        if name in repeated:
            raise InputError(f"{origin} names the sample {name!r}, and several samples are called so: give them ids.")
        found[places[name]] = answer
    return found
