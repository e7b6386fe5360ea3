"""What the audit says of every row: figures by heads that have not seen it, labels that look wrong, and sums by class."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from icda.errors import InputError
from icda.extras import require
from icda.heads.blocks import Reading
from icda.heads.cross_fit import cross_fitted_strength
from icda.heads.dealing import Place
from icda.heads.folds import Contrast, HeldTies
from icda.results.files import replacing, replacing_text
from icda.results.foreign_text import safe_cell, write_csv

RowForm = Literal["csv", "parquet"]
WRITTEN = re.compile(r"\.?rows-\d{12,}\.(csv|parquet)(\.[0-9a-f]+\.part)?")  # names of `look_at_rows`
COLUMNS = (
    "index",
    "name",
    "label",
    "tied_to",
    "strength",
    "tie",
    "suspected",
    "group",
    "predicted",
    "label_quality",
    "label_issue",
)


class RowFigures(NamedTuple):
    """What is said of some rows, one entry each; classes are numbers."""

    row: np.ndarray
    label: np.ndarray
    tied_to: np.ndarray  # the likeliest wrong class
    strength: np.ndarray  # alpha towards it
    tie: np.ndarray  # larger the more tied
    predicted: np.ndarray
    quality: np.ndarray
    issue: np.ndarray

    @property
    def suspected(self) -> np.ndarray:
        return self.tie > 0

    def chosen(self, rows: np.ndarray | slice) -> Self:
        return type(self)(*(part[rows] for part in self))

    def records(self, names: list[str], sample_names: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """A dictionary with `COLUMNS` for each row; without names a row is called by its number."""
        for i, row in enumerate(self.row):
            label, suspected = names[self.label[i]], bool(self.suspected[i])
            values = (
                int(row),
                str(row) if sample_names is None else sample_names[row],
                label,
                names[self.tied_to[i]],
                float(self.strength[i]),
                float(self.tie[i]),
                suspected,
                f"{label}, {'tied' if suspected else 'rest'}",
                names[self.predicted[i]],
                float(self.quality[i]),
                bool(self.issue[i]),
            )
            yield dict(zip(COLUMNS, values, strict=True))

    def most_tied(self, top: int | None) -> Self:
        return self.chosen(np.lexsort([self.row, -self.tie])[:top])

    def most_doubtful(self, top: int | None) -> Self:
        return self.chosen(np.lexsort([self.row, self.quality])[:top])


def joined(parts: list[RowFigures]) -> RowFigures:
    return RowFigures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class RowSums:
    """Sums over rows by class, and the rows at the top of both rankings."""

    towards: np.ndarray  # (C, C), strengths of the rows of a class towards the others
    confident: np.ndarray  # (C, C), rows by label and confident class
    tied_to: np.ndarray  # (C, C), suspects by label and the class that they are tied to
    strength: np.ndarray  # (C,), of suspects
    right: np.ndarray  # (C,)
    right_suspected: np.ndarray  # (C,)
    issues: int
    tied: RowFigures
    doubtful: RowFigures

    def plus(self, other: Self, top: int | None) -> Self:
        added = {
            entry.name: getattr(self, entry.name) + getattr(other, entry.name)
            for entry in fields(self)
            if entry.name not in ("tied", "doubtful")
        }
        tied = joined([self.tied, other.tied]).most_tied(top)
        return replace(self, **added, tied=tied, doubtful=joined([self.doubtful, other.doubtful]).most_doubtful(top))


def look_at_rows(
    place: Place,
    reading: Reading,
    held: Contrast | HeldTies,
    thresholds: np.ndarray,
    top: int | None,
    folder: Path | None,
    form: RowForm,
    issues: np.ndarray | None = None,
) -> RowSums:
    """The figures of all rows of a block, written if there is a folder, and their sums."""
    sums = None
    for chunk in reading.chunks(place):
        marked = None if issues is None else issues[chunk.rows]
        part = sum_figures(int(chunk.rows[0]), *held.judged(chunk), chunk.targets, thresholds, marked)
        sums = part if sums is None else sums.plus(part, None)
    assert sums is not None
    if folder is not None:
        names = [str(label) for label in reading.classes]
        write_part(sums.tied.chosen(np.argsort(sums.tied.row)), names, folder / f"rows-{place.start:012d}.{form}")
    return replace(sums, tied=sums.tied.most_tied(top), doubtful=sums.doubtful.most_doubtful(top))


def sum_figures(
    start: int, logits: Tensor, ties: Tensor, targets: Tensor, thresholds: np.ndarray, issues: np.ndarray | None = None
) -> RowSums:
    """Figures and sums of rows from `start` on; both rankings hold all of them. `issues` are labels marked otherwise."""
    probabilities, labels, classes = torch.softmax(logits.double(), 1).numpy(), targets.numpy(), logits.shape[1]
    strengths = cross_fitted_strength(logits.double(), targets).per_class
    towards = torch.zeros(classes, classes, dtype=torch.float64).index_add_(0, targets, strengths).numpy()
    strength, tied_to = strengths.max(1)
    confident = confident_class(probabilities, thresholds)
    rows = RowFigures(
        np.arange(start, start + len(labels)),
        labels,
        tied_to.numpy(),
        strength.numpy(),
        ties.double().numpy(),
        probabilities.argmax(1),
        label_quality(probabilities, labels),
        (confident >= 0) & (confident != labels) if issues is None else issues,
    )
    part, right = rows.suspected, rows.predicted == labels

    def table(chosen: np.ndarray, columns: np.ndarray) -> np.ndarray:
        pairs = labels[chosen] * classes + columns[chosen]
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    return RowSums(
        towards,
        table(confident >= 0, confident),
        table(part, rows.tied_to),
        np.bincount(labels[part], rows.strength[part], minlength=classes),
        np.bincount(labels[right], minlength=classes),
        np.bincount(labels[right & part], minlength=classes),
        int(rows.issue.sum()),
        rows,
        rows,
    )


@dataclass(frozen=True)
class LabelNoise:
    """Suspected wrong labels, after Northcutt, Jiang & Chuang, Confident learning (JAIR 2021).

    `thresholds` (C,) is each class's mean self-confidence. `joint` (C, C) estimates how many samples labelled as the row
    are of the column; `rate` is its share off the diagonal. Issues are marked by our rule, or by cleanlab's
    `find_label_issues` where that was asked for.
    """

    thresholds: np.ndarray
    joint: np.ndarray
    num_issues: int
    found_by: str = "icda"

    @property
    def rate(self) -> float:
        return float(1 - np.trace(self.joint) / self.joint.sum())


def cleanlab_issues(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The labels (N,) that cleanlab marks."""
    cleanlab = require("cleanlab.filter", "audit", "cleanlab's label issues")
    return np.asarray(cleanlab.find_label_issues(targets, probabilities, n_jobs=1), dtype=bool)


def label_quality(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """p_y / (p_y + p_c) with c the likeliest other class: how sure one may be of the label against its best rival.

    Ours. It orders samples as the margin of their logits does, and leaves out what the other classes share among them.

    >>> label_quality(np.array([[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]]), np.array([0, 1])).round(3).tolist()
    [0.75, 0.333]
    """
    rows = np.arange(len(targets))
    own = probabilities[rows, targets]
    others = probabilities.copy()
    others[rows, targets] = 0
    return own / np.maximum(own + others.max(1), np.finfo(np.float64).tiny)


def confident_class(probabilities: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The likeliest class among those whose probability reaches their threshold; -1 where none does."""
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(1) >= 0, reached.argmax(1), -1)


def scaled_joint(table: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts (C, C) by label and confident class, each row scaled to the number (C,) of samples with that label.

    >>> scaled_joint(np.array([[3, 1], [0, 0]]), np.array([8, 5])).tolist()
    [[6.0, 2.0], [0.0, 5.0]]
    """
    table = table.astype(float)
    table[table.sum(1) == 0] = np.eye(len(counts))[table.sum(1) == 0]  # nothing confident: take the labels as they are
    return table / table.sum(1, keepdims=True) * counts[:, None]


def check_folder(folder: Path, data: Path, form: RowForm) -> None:
    """Refuse, before the first pass, a folder in which rows could not be written or would take the place of the data."""
    place, source = folder.resolve(), data.resolve()
    if place.exists() and not place.is_dir():
        raise InputError(f"{folder} is a file: rows are written into a folder of that name. Choose another --out.")
    if source.is_relative_to(place):
        raise InputError(
            f"{data} lies in {folder}, where rows are written and older ones deleted: choose another --out."
        )
    if form == "parquet" and place.is_relative_to(source):
        raise InputError(
            f"{folder} lies in {data}: its Parquet would be read as data the next time. Choose another --out."
        )


def prepare_folder(folder: Path) -> None:
    """A folder without the rows of an earlier audit: other blocks would have left files beside those of these."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if WRITTEN.fullmatch(old.name):
            old.unlink()


def write_part(rows: RowFigures, names: list[str], path: Path) -> None:
    """The rows of a block in a file of their own; whole or not there, so that a worker may die while it writes."""
    if path.suffix == ".csv":
        with replacing_text(path) as file:
            write_csv(file, COLUMNS, rows.records(names))
        return
    arrow, parquet = (require(name, "parquet", "Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
    records = list(rows.records([str(safe_cell(name)) for name in names]))
    with replacing(path) as target:
        parquet.write_table(arrow.Table.from_pylist(records), target)
