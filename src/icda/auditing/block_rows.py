"""One pass over the rows of blocks: the figures of every row, written where its block lies, and sums of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.auditing.label_noise import confident_class, label_quality
from icda.auditing.result import COLUMNS
from icda.errors import InputError
from icda.extras import require
from icda.linear.block_folds import Contrast, Dealing, wrong_margin
from icda.linear.cross_fit import cross_fitted_strength
from icda.linear.dealing import Place
from icda.results.foreign_text import safe_cell, write_csv

RowForm = Literal["csv", "parquet"]
WRITTEN = re.compile(r"rows-\d{12,}\.(csv|parquet)(\.\d+\.part)?")  # names of `write_part`


class RowFigures(NamedTuple):
    """What is said of some rows, one entry each; classes are numbers."""

    row: np.ndarray
    label: np.ndarray
    tied_to: np.ndarray
    strength: np.ndarray
    tie: np.ndarray
    predicted: np.ndarray
    quality: np.ndarray
    issue: np.ndarray

    @property
    def suspected(self) -> np.ndarray:
        return self.tie > 0

    def chosen(self, rows: np.ndarray) -> RowFigures:
        return RowFigures(*(part[rows] for part in self))

    def records(self, names: list[str]) -> Iterator[dict[str, Any]]:
        """A dictionary with `COLUMNS` for each row; a row's name is its number."""
        for i in range(len(self.row)):
            label, suspected = names[self.label[i]], bool(self.suspected[i])
            values = (
                int(self.row[i]),
                str(self.row[i]),
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

    def most_tied(self, top: int) -> RowFigures:
        return self.chosen(np.lexsort([self.row, -self.tie])[:top])

    def most_doubtful(self, top: int) -> RowFigures:
        return self.chosen(np.lexsort([self.row, self.quality])[:top])


def joined(parts: list[RowFigures]) -> RowFigures:
    return RowFigures(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class RowQuestion:
    """What a block needs to say everything of its rows, and where to write it."""

    dealing: Dealing
    contrast: Contrast
    thresholds: np.ndarray
    names: list[str]
    top: int
    folder: Path | None = None
    form: RowForm = "csv"


@dataclass(frozen=True)
class MarginSums:
    """What makes the margins of two kinds of heads comparable: number, mean and sum of squares about it."""

    count: int
    mean: float
    squares: float
    confidence: np.ndarray  # (C,), sums of the probability of a row's own class

    def plus(self, other: MarginSums) -> MarginSums:
        count, apart = self.count + other.count, other.mean - self.mean
        mean = self.mean + apart * other.count / count
        squares = self.squares + other.squares + apart**2 * self.count * other.count / count
        return MarginSums(count, mean, squares, self.confidence + other.confidence)

    @property
    def deviation(self) -> float:
        return max((self.squares / max(self.count - 1, 1)) ** 0.5, 1e-12)


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

    def plus(self, other: RowSums, top: int) -> RowSums:
        added = {
            entry.name: getattr(self, entry.name) + getattr(other, entry.name)
            for entry in fields(self)
            if entry.name not in ("tied", "doubtful")
        }
        tied = joined([self.tied, other.tied]).most_tied(top)
        return RowSums(**added, tied=tied, doubtful=joined([self.doubtful, other.doubtful]).most_doubtful(top))


def sum_margins(place: Place, dealing: Dealing, contrast: Contrast) -> MarginSums:
    """Of the robust heads of a contrast, or of the biased ones where there are no robust heads yet."""
    heads = contrast.biased if contrast.robust is None else contrast.robust
    margins, confidence = [], np.zeros(len(dealing.classes))
    for features, targets, folds in dealing.chunks(place):
        logits = heads.held_out(features, folds).double()
        margins.append(wrong_margin(logits, targets))
        own = torch.softmax(logits, 1).gather(1, targets[:, None])[:, 0]
        confidence += np.bincount(targets.numpy(), own.numpy(), minlength=len(confidence))
    values = torch.cat(margins)
    mean = float(values.mean())
    return MarginSums(len(values), mean, float((values - mean).square().sum()), confidence)


def look_at_rows(place: Place, question: RowQuestion) -> RowSums:
    """The figures of all rows of a block, written if there is a folder, and their sums."""
    classes = len(question.names)
    towards, confident, figures, start = np.zeros((classes, classes)), [], [], place.start
    for features, targets, folds in question.dealing.chunks(place):
        logits = question.contrast.biased.held_out(features, folds)
        ties = question.contrast.ties(features, targets, folds, logits)
        strengths = cross_fitted_strength(logits.double(), targets).per_class
        towards += torch.zeros(classes, classes, dtype=torch.float64).index_add_(0, targets, strengths).numpy()
        rows, sure = _figures(start, logits, targets, ties, strengths, question.thresholds)
        confident.append(sure)
        figures.append(rows)
        start += len(targets)
    block = joined(figures)
    if question.folder is not None:
        write_part(block, question, place.start)
    return _sums(block, towards, np.concatenate(confident), question)


def _figures(
    start: int, logits: Tensor, targets: Tensor, ties: Tensor, strengths: Tensor, thresholds: np.ndarray
) -> tuple[RowFigures, np.ndarray]:
    probabilities, labels = torch.softmax(logits.double(), 1).numpy(), targets.numpy()
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
        (confident >= 0) & (confident != labels),
    )
    return rows, confident


def _sums(rows: RowFigures, towards: np.ndarray, confident: np.ndarray, question: RowQuestion) -> RowSums:
    classes, part, right = len(towards), rows.suspected, rows.predicted == rows.label
    counted = confident >= 0

    def table(chosen: np.ndarray, columns: np.ndarray) -> np.ndarray:
        pairs = rows.label[chosen] * classes + columns[chosen]
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    return RowSums(
        towards,
        table(counted, confident),
        table(part, rows.tied_to),
        np.bincount(rows.label[part], rows.strength[part], minlength=classes),
        np.bincount(rows.label[right], minlength=classes),
        np.bincount(rows.label[right & part], minlength=classes),
        int(rows.issue.sum()),
        rows.most_tied(question.top),
        rows.most_doubtful(question.top),
    )


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


def write_part(rows: RowFigures, question: RowQuestion, start: int) -> Path:
    """The rows of a block in a file of their own; whole or not there, so that a worker may die while it writes."""
    assert question.folder is not None
    path = question.folder / f"rows-{start:012d}.{question.form}"
    begun = path.with_name(f"{path.name}.{os.getpid()}.part")
    if question.form == "csv":
        with begun.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            write_csv(file, COLUMNS, rows.records(question.names))
    else:
        arrow, parquet = (require(name, "parquet", "Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
        records = list(rows.records([str(safe_cell(name)) for name in question.names]))
        parquet.write_table(arrow.Table.from_pylist(records), begun)
    begun.replace(path)
    return path
