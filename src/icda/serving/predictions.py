"""New inputs from the folders and files that people have them in, and a file of what a model says of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.embedding.run import Progress
from icda.data.embedding.samples import Columns, Reads, Samples
from icda.data.own.reading import read_samples
from icda.errors import InputError
from icda.results.files import replacing_text
from icda.results.foreign_text import write_csv
from icda.serving.model import Model, check_features, probabilities_of

ADVICE = "Without labels there is nothing to judge: `icda predict` takes images in any folders."
POINTS_TO, DISAGREE = "shortcut_points_to", "disagree"


def read_new(path: Path, reads: Reads, **named: Any) -> Samples:
    """Samples read as the data of the fit were, of the kind that the model reads; `named` are fields of `Columns`."""
    samples = read_samples(path, Columns(reads=reads, **named), advice=ADVICE)
    if samples.features is None:
        return samples
    reads.check_made_alike(samples.reads, path)
    features, columns = samples.features, samples.reads.columns
    if reads.columns is None and columns is not None and len(columns) == features.shape[1] > 1:
        raise InputError(
            f"{path} is a table, and the model was fitted to an array of {reads.width} features: use .npz."
        )
    if not len(features):
        raise InputError(f"{path} has no rows: there is nothing to predict.")
    return replace(samples, features=check_features(features, reads, path))


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
    path, kind = Path(data).expanduser(), model.reads.kind
    role = "features" if path.suffix.lower() in (".npz", ".parquet") else kind
    named = {} if role == "features" and path.suffix.lower() == ".csv" else {role: column}  # columns are as in the fit
    samples = read_new(path, model.reads, unlabelled=True, allow_outside=allow_outside, **named)
    count, are_paths = len(samples), samples.features is None and kind == "image"
    id_name = "path" if are_paths else "row" if isinstance(samples.ids, range) else "id"
    probabilities = np.full((count, len(model.classes)), np.nan)
    points_to: np.ndarray | None = None
    for rows, answers in model.answers(samples, skip_unreadable):
        chosen = np.arange(rows.start, rows.stop)[answers.kept]
        probabilities[chosen] = probabilities_of(answers.logits)
        if answers.points_to is not None:
            points_to = np.full(count, None, dtype=object) if points_to is None else points_to
            points_to[chosen] = model.classes[answers.points_to]
        if progress is not None:
            progress(rows.stop, count)
    if np.isnan(probabilities[:, 0]).all():
        raise InputError(f"none of the {count} inputs of {data} can be read: nothing to write.")
    return Predictions(samples.names, id_name, model.classes, probabilities, points_to)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
