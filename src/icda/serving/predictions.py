"""New inputs from the folders and files that people have them in, and a file of what a model says of each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.embedding import Samples, read_samples
from icda.data.embedding.run import Progress
from icda.data.embedding.samples import Columns
from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.feature_files import NAMES, column_names, read_feature_file
from icda.data.own.table import IMAGE, TEXT, CsvTable, read_table
from icda.errors import InputError, MissingFileError
from icda.registry import did_you_mean
from icda.results.files import replacing_text
from icda.results.foreign_text import write_csv
from icda.serving.fit_data import FILES
from icda.serving.model import Model, Reads, check_features, probabilities_of

POINTS_TO, DISAGREE = "shortcut_points_to", "disagree"


NewData = tuple[Samples | np.ndarray, str, Iterable[object]]  # inputs, whether ids are a path, row or id, and ids (N,)


def read_new(path: Path, reads: Reads, column: str | None = None, allow_outside: bool = False) -> NewData:
    """Inputs of the kind that the model reads; `column` names that of paths, texts, or a file's array of features."""
    described = f"{reads.width} features" if reads.kind == "features" else f"{reads.kind}s"
    if path.is_dir():
        if reads.kind != "image":
            raise InputError(f"{path} is a folder, and the model reads {described}: give a file of those.")
        samples = read_samples(path, unlabelled=True, allow_outside=allow_outside)
        return samples, "path", samples.ids
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: give a folder of images, a .csv, .npz or .parquet.")
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        if reads.kind != "image":
            raise InputError(f"{path} is an image, and the model reads {described}.")
        return Samples("image", [path], [path.name]), "path", [path.name]
    if reads.kind == "features" or suffix in FILES:
        return _features(path, reads, None if suffix in (".csv", ".npy") else column)
    return _from_table(read_table(path), reads, column, allow_outside)


def _from_table(table: CsvTable, reads: Reads, column: str | None, allow_outside: bool) -> NewData:
    ids = table.find("name", None, NAMES)
    usual = TEXT if reads.kind == "text" else IMAGE
    if column is None and reads.column in table.columns:
        column = reads.column
    found = table.find(reads.kind, column, usual)
    if found is None:
        called = "" if reads.column is None else f" (in the fit it was called {reads.column!r})"
        raise InputError(
            f"{table.path} has no column of {reads.kind}s by a usual name, which the model reads{called}: name it with "
            f"--column (column= in Python). It has {table.described()}."
        )
    columns = Columns(text=found) if reads.kind == "text" else Columns(image=found)
    samples = read_samples(table.path, columns, unlabelled=True, allow_outside=allow_outside)
    if reads.kind == "image" or ids is None or ids == found:
        return samples, "path" if reads.kind == "image" else "row", samples.ids
    return samples, "id", table.columns[ids]


def _features(path: Path, reads: Reads, column: str | None) -> NewData:
    """Features of a file, read as those of the fit."""
    if column is not None and column not in (known := column_names(path)):
        raise InputError(f"{path} has no column {column!r}: {did_you_mean(column, known)}It has {', '.join(known)}.")
    named = {} if column is None else {"features": column, "array": None, "fitted": None, "plan": None}
    found = read_feature_file(path, reads.asked(unlabelled=True, **named))
    reads.check_made_alike(found.embedding, path)
    features = found.features
    if reads.columns is None and found.columns is not None and len(found.columns) == features.shape[1] > 1:
        raise InputError(
            f"{path} is a table, and the model was fitted to an array of {reads.width} features: use .npz."
        )
    if features.ndim != 2 or features.shape[1] != reads.width:
        raise InputError(f"{path} has features of shape {features.shape}, the model was fitted to (N, {reads.width}).")
    if not len(features):
        raise InputError(f"{path} has no rows: there is nothing to predict.")
    features = check_features(features, reads, path)
    return (features, "row", range(len(features))) if found.names is None else (features, "id", found.names)


@dataclass(frozen=True)
class Predictions:
    """What a model says of each input; an input that could not be read has no label, and NaN for probabilities.

    `points_to` (N,) is the class that the shortcut alone would suggest, for a model that was treated against one.
    """

    ids: list[str]
    id_name: str
    classes: np.ndarray
    probabilities: np.ndarray  # (N, C)
    points_to: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def readable(self) -> np.ndarray:
        """Whether each input (N,) could be read."""
        return ~np.isnan(self.probabilities[:, 0])

    @property
    def labels(self) -> np.ndarray:
        """The likeliest class of each input; None where it could not be read."""
        numbers = np.where(self.readable, self.probabilities.argmax(1), -1)
        return np.array([None if k < 0 else self.classes[k] for k in numbers], dtype=object)

    @property
    def skipped(self) -> list[str]:
        return [name for name, kept in zip(self.ids, self.readable, strict=True) if not kept]

    @property
    def disagreements(self) -> int | None:
        """Inputs whose label is not what the shortcut points to."""
        return None if self.points_to is None else int((self.labels != self.points_to)[self.readable].sum())

    def columns(self) -> list[str]:
        named = [self.id_name, "label", *(f"p_{name}" for name in self.classes)]
        return named if self.points_to is None else [*named, POINTS_TO, DISAGREE]

    def rows(self) -> Iterator[dict[str, Any]]:
        """A dictionary with `columns` for each input; what is not known is an empty text."""
        names, columns = [f"p_{name}" for name in self.classes], self.columns()
        for row, label in enumerate(self.labels):
            if label is None:
                yield dict.fromkeys(columns, "") | {self.id_name: self.ids[row]}
                continue
            values: dict[str, Any] = {self.id_name: self.ids[row], "label": _plain(label)}
            values |= dict(zip(names, self.probabilities[row].tolist(), strict=True))
            if self.points_to is not None:
                towards = self.points_to[row]
                values |= {POINTS_TO: _plain(towards), DISAGREE: "yes" if towards != label else "no"}
            yield values

    def to_csv(self, path: str | PathLike[str]) -> Path:
        """Write the table; names that spreadsheets take for formulas become text."""
        path = Path(path).expanduser()
        with replacing_text(path) as file:
            write_csv(file, self.columns(), self.rows())
        return path


def predict_data(
    model: Model,
    data: str | PathLike[str],
    *,
    column: str | None = None,
    skip_unreadable: bool = False,
    allow_outside: bool = False,
    progress: Progress | None = None,
) -> Predictions:
    """What a model says of the inputs in a folder of images, a .csv, an .npz or a .parquet.

    `column` names the column of paths or texts, or the array of features, where it is called otherwise than in the fit.
    `skip_unreadable` leaves unreadable images without a prediction instead of stopping.
    """
    inputs, id_name, ids = read_new(Path(data).expanduser(), model.reads, column, allow_outside)
    count = len(inputs)
    probabilities = np.full((count, len(model.classes)), np.nan)
    points_to: np.ndarray | None = None
    for rows, answers in model.answers(inputs, skip_unreadable):
        chosen = np.arange(rows.start, rows.stop)[answers.kept]
        probabilities[chosen] = probabilities_of(answers.logits)
        if answers.points_to is not None:
            points_to = np.full(count, None, dtype=object) if points_to is None else points_to
            points_to[chosen] = model.classes[answers.points_to]
        if progress is not None:
            progress(rows.stop, count)
    if np.isnan(probabilities[:, 0]).all():
        raise InputError(f"none of the {count} inputs of {data} can be read: nothing to write.")
    return Predictions([str(name) for name in ids], id_name, model.classes, probabilities, points_to)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
