"""What `icda.load` gives: a model that is asked for classes, probabilities and features, and what it reads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.data.embedding.samples import Reads, Samples
from icda.data.own.encoding import encode_table, frame_cells
from icda.errors import InputError, InputTypeError, MissingFileError
from icda.results.claims import place_of
from icda.results.files import MODEL
from icda.serving.folder import FACTS

CHUNK = 512  # samples read and encoded at once
REMEDY = "Repair or remove them, or leave them out with --skip-unreadable (skip_unreadable=True in Python)."


@dataclass(frozen=True)
class Answers:
    """What a model says of samples: `features` (n, A) and `logits` (n, C) of those that are `kept` (N,).

    `points_to` (n,) is the number of the class that the shortcut alone would suggest, for a model treated against one.
    """

    features: np.ndarray
    logits: np.ndarray
    kept: np.ndarray
    points_to: np.ndarray | None = None


class Model(ABC):
    """A classifier that somebody trained, with the preprocessing it was trained with.

    `classes` (C,) are the names of the classes, in the order of the probabilities. Inputs are what `reads.kind` says: a
    list of image paths or texts, or an array of features (N, A); a model with an encoder takes features as well.
    """

    classes: np.ndarray
    reads: Reads
    class_counts: list[int] | None  # training samples of each class, where the model says
    split_column: str | None = None  # named in the training

    @abstractmethod
    def described(self, data: str) -> dict[str, Any]:
        """Method, model and settings, as a `RunResult` about `data` has them."""

    @abstractmethod
    def answer_features(self, features: np.ndarray) -> Answers:
        """What the model says of features (N, A)."""

    @abstractmethod
    def answer(self, samples: Samples, rows: range, skip_unreadable: bool = False) -> Answers:
        """What the model says of some images or texts."""

    def answers(self, samples: Samples, skip_unreadable: bool = False) -> Iterator[tuple[range, Answers]]:
        """What the model says of features, or of images or texts some at a time; with the rows that it is said of."""
        if samples.features is not None:
            yield range(len(samples)), self.answer_features(samples.features)
            return
        for first in range(0, len(samples), CHUNK):
            rows = range(first, min(first + CHUNK, len(samples)))
            yield rows, self.answer(samples, rows, skip_unreadable)

    def embed(self, X: Any) -> np.ndarray:
        """Features (N, A) of inputs."""
        return self._ask(X, "features")

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, C) of the classes."""
        return probabilities_of(self._ask(X, "logits"))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class (N,) of each input."""
        return self.classes[self._ask(X, "logits").argmax(1)]

    def _ask(self, X: Any, part: str) -> np.ndarray:
        return np.concatenate([getattr(answers, part) for _, answers in self.answers(as_samples(X, self.reads))])


def probabilities_of(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(logits), 1).numpy()


def is_features(X: Any) -> bool:
    """Whether inputs are rows of numbers: an array of two dimensions, a data frame, or a list of lists.

    >>> is_features(np.zeros((2, 3))), is_features([[1.0, 2.0]]), is_features(["a.png"]), is_features(["good film"])
    (True, True, False, False)
    """
    if hasattr(X, "iloc") or isinstance(X, np.ndarray | torch.Tensor):
        return np.ndim(X) == 2
    return isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Sequence | np.ndarray) and np.ndim(X[0]) == 1


def check_features(X: Any, reads: Reads, origin: Path | str = "X") -> np.ndarray:
    """Features as floats (N, A), as wide as those of the fit; a data frame's columns are taken by their names."""
    wanted = list(reads.fitted or ())
    if hasattr(X, "columns") and (reads.table is not None or len(wanted) == reads.width):
        missing = [name for name in wanted if name not in X.columns]
        if missing:
            raise InputError(f"the data frame lacks the column {missing[0]!r}, which the model was fitted to.")
        X = X[wanted] if reads.table is None else encode_table(frame_cells(X, wanted), reads.table)
    try:
        values = np.asarray(X)
        values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"features must be numbers ({error}).") from error
    if values.ndim != 2 or values.shape[1] != reads.width:
        raise InputError(f"{origin} has features of shape {values.shape}, the model was fitted to (N, {reads.width}).")
    check_finite(values, reads.columns, origin)
    return np.ascontiguousarray(values)


def check_finite(features: np.ndarray, columns: tuple[str, ...] | None, path: Path | str) -> None:
    """Refuse NaN and infinity by their place."""
    finite = np.isfinite(features)
    if finite.all():
        return
    row, place = (int(number) for number in np.argwhere(~finite)[0])
    where = f", column {place} (counted from 0)"
    if columns is not None and len(columns) == features.shape[1]:
        where = f" (counted from 0), column {columns[place]!r}"
    rows = int((~finite.all(1)).sum())
    raise InputError(
        f"{path}: the features of {rows} of {len(features)} rows hold NaN or infinite values, the first in row "
        f"{row}{where}: fill or drop them."
    )


def as_samples(X: Any, reads: Reads) -> Samples:
    """A list of paths or texts, or rows of numbers, as samples."""
    if is_features(X):
        features = check_features(X, reads)
        return Samples(reads, range(len(features)), features=features)
    if isinstance(X, str | bytes | Path) or not isinstance(X, Sequence | np.ndarray):
        raise InputError(
            f"got a {type(X).__name__}, expected a list of {reads.kind}s or features (N, {reads.width}). Files and folders "
            "are read by `icda predict`, or icda.serving.predict_data(model, path)."
        )
    items = list(X)
    if not items:
        raise InputError(f"got no inputs: expected at least one of the {reads.kind}s.")
    if reads.kind == "features":
        raise InputError(f"this model reads features: expected an array of shape (N, {reads.width}).")
    wanted, said = (str, "texts") if reads.kind == "text" else (str | Path, "image files")
    wrong = next((item for item in items if not isinstance(item, wanted)), None)
    if wrong is not None:
        raise InputError(f"this model reads {said}, got a {type(wrong).__name__}: give texts or paths.")
    if reads.kind == "text":
        return Samples(reads, range(len(items)), items)
    paths = [Path(item).expanduser() for item in items]
    return Samples(reads, [str(path) for path in paths], paths)


def load(path: str | PathLike[str], *, allow_hub: bool = False) -> Model:
    """The model that `icda fit` or `icda train` left in a folder, ready to be asked.

    Nothing in the folder can run code: `icda fit` writes JSON and safetensors, and the checkpoint of a run is read as plain
    tensors.

    Args:
        path: The folder.
        allow_hub: Whether an encoder or network that the folder names by a hub (hf:, timm:) may be fetched.

    Returns:
        The model: its `predict`, `predict_proba` and `embed` take a list of image paths or texts, or features (N, A).
    """
    if not isinstance(path, str | PathLike):
        raise InputTypeError(f"load expects the path of a model's folder, got {path!r}.")
    folder = Path(path).expanduser()
    facts = place_of(folder, FACTS)
    if facts.is_file() and (facts.stat().st_size or facts.parent == folder):
        from icda.serving.head import load_head

        return load_head(folder, allow_hub)
    if (folder / MODEL).is_file():
        from icda.serving.network import load_network

        return load_network(folder, allow_hub)
    raise MissingFileError(
        f"{folder.absolute()} holds no model ({FACTS} or {MODEL}): give a folder that `icda fit` or `icda train` wrote."
    )
