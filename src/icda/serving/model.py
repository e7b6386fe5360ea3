"""What `icda.load` gives: a model that is asked for classes, probabilities and features, and what it reads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

import numpy as np
import torch

from icda.data.embedding import Encoder, Samples
from icda.data.embedding.samples import Columns
from icda.data.own.encoding import Plan, encode_table, feature_names, frame_cells, plan_from_list
from icda.errors import InputError, InputTypeError, MissingFileError, OperationError
from icda.limits import check_side
from icda.results.claims import place_of
from icda.results.files import MODEL
from icda.serving.folder import FACTS
from icda.settings import check

KINDS = ("image", "text", "features")
NOT_SAVED = ("allow_hub", "_loaded")


@dataclass(frozen=True)
class Reads:
    """Of what kind the inputs are, how many features there are, and where they stand in a file.

    `column` is the column of paths or texts in the table that the model was fitted to, `columns` those of the features or,
    among several arrays, `array`; `label` and `group` are those of labels and groups, where the user named them.
    """

    kind: Literal["image", "text", "features"]
    width: int
    encoder: str | None = None
    encoder_version: str | None = None
    image_size: int | None = None
    column: str | None = None
    columns: tuple[str, ...] | None = None
    label: str | None = None
    group: str | None = None
    array: str | None = None
    table: Plan | None = None  # how words, dates and empty cells of a table become features
    allow_hub: bool = field(default=True, compare=False)  # False for a name that stands in a file
    _loaded: list[Encoder] = field(default_factory=list, repr=False, compare=False)

    def asked(self, **named: Any) -> Columns:
        """What a file of features is asked for, so that it is read as in the fit."""
        fitted = None if self.table else self.columns
        return Columns(**{"fitted": fitted, "array": self.array or "features", "plan": self.table, **named})

    def as_dict(self) -> dict[str, Any]:
        known = {name: value for name, value in vars(self).items() if name not in NOT_SAVED}
        return known | {"table": None if self.table is None else [asdict(one) for one in self.table]}

    @classmethod
    def from_dict(cls, values: object, origin: str) -> Self:
        """Checked: the values may come from a stranger's file."""
        given: dict[str, Any] = dict(values) if isinstance(values, Mapping) else {}
        if given.get("kind") not in KINDS:
            raise InputError(f"{origin} does not say what the model reads ({', '.join(KINDS)}).")
        if isinstance(given.get("columns"), list):
            given["columns"] = tuple(given["columns"])
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name not in ("table", *NOT_SAVED)}
        saved: dict[str, Any] = {name: given.get(name) for name in kinds}
        check(saved, kinds, f"{origin}: ")
        if str(saved["label"]).lower().endswith(".npy"):  # an earlier icda kept the path of the labels
            saved["label"] = None
        if (size := saved["image_size"]) is not None:
            check_side(size, origin)
        table = None if given.get("table") is None else plan_from_list(given["table"], origin)
        if table is not None and len(feature_names(table)) != saved["width"]:
            raise InputError(f"{origin}: the table makes {len(feature_names(table))} features, not {saved['width']}.")
        return cls(**saved, table=table)

    def check_made_alike(self, embedding: Mapping[str, Any], path: Path) -> None:
        """Refuse a file whose features another encoder made, or the same one of images of another size."""
        version, size = embedding.get("encoder_version"), embedding.get("image_size")
        fitted = self.encoder_version
        if version is not None and fitted is not None and weights_of(str(version)) != weights_of(fitted):
            raise InputError(
                f"{path} holds features of {embedding.get('encoder')} ({version}), the model was fitted to those of "
                f"{self.encoder} ({fitted}): embed with the same encoder."
            )
        if size is not None and self.image_size is not None and str(size) != str(self.image_size):
            raise InputError(
                f"{path} holds features of images of {size} pixels a side, the model was fitted to those of "
                f"{self.image_size}: embed with --image-size {self.image_size}."
            )

    def load_encoder(self) -> Encoder:
        """The encoder that the features were made with, loaded once; refused if its weights are others here."""
        if not self._loaded:
            if self.encoder is None or self.kind == "features":
                raise OperationError("this model reads features and has no encoder: give it rows of numbers.")
            from icda.models.encoders import create_encoder
            from icda.models.hub import hub

            with hub(self.allow_hub):
                encoder = create_encoder(self.encoder, self.kind, self.image_size)
            if self.encoder_version is not None and weights_of(encoder.version) != weights_of(self.encoder_version):
                raise OperationError(
                    f"the model was fitted to features of {self.encoder} ({self.encoder_version}), here it is "
                    f"{encoder.version}: its features differ. Install that version, or fit again."
                )
            self._loaded.append(encoder)
        return self._loaded[0]


def weights_of(version: str) -> str:
    """The digest of an encoder's weights, which decides what it answers; a package may have several versions of it.

    >>> weights_of("some_package 0.1, weights 0123456789ab")
    '0123456789ab'
    """
    return version.rpartition("weights ")[2]


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

    def answers(self, inputs: np.ndarray | Samples, skip_unreadable: bool = False) -> Iterator[tuple[range, Answers]]:
        """What the model says of features, or of images or texts some at a time; with the rows that it is said of."""
        if isinstance(inputs, np.ndarray):
            yield range(len(inputs)), self.answer_features(inputs)
            return
        for first in range(0, len(inputs), CHUNK):
            rows = range(first, min(first + CHUNK, len(inputs)))
            yield rows, self.answer(inputs, rows, skip_unreadable)

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
        inputs = check_features(X, self.reads) if is_features(X) else as_samples(X, self.reads)
        return np.concatenate([getattr(answers, part) for _, answers in self.answers(inputs)])


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
    wanted = list(reads.columns or ()) if reads.table is None else [one.name for one in reads.table]
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
        raise InputError(f"got features of shape {values.shape}, expected (N, {reads.width}) as in the fit.")
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
    """A list of paths or texts as samples."""
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
        return Samples("text", items, range(len(items)))
    paths = [Path(item).expanduser() for item in items]
    return Samples("image", paths, [str(path) for path in paths])


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
