"""A linear head on features, with the encoder that made them: what `icda fit` writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.embedding import Encoder, Samples, encode_rows
from icda.data.embedding.samples import Reads, weights_of
from icda.errors import InputError, OperationError
from icda.limits import LARGEST_NAMES, LONGEST_NAME
from icda.models.encoders import create_encoder
from icda.models.hub import hub
from icda.results.claims import renewed
from icda.serving.folder import FACTS, WEIGHTS, WRITTEN, read_model, write_model
from icda.serving.model import REMEDY, Answers, Model

BATCH = 32
Label = str | int | float | bool


@dataclass(frozen=True)
class ShortcutReader:
    """A head that reads the attribute behind a conditional prior, and the class (K,) that goes with each value."""

    coef: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray  # numbers of classes

    def answers(self, features: np.ndarray) -> np.ndarray:
        return self.classes[linear_logits(features, self.coef, self.intercept).argmax(1)]


@dataclass
class HeadModel(Model):
    """`coef` (C, A) and `intercept` (C,) for features as they come; `facts` are what a reader may ask about the fit."""

    classes: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    reads: Reads
    shortcut: ShortcutReader | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    allow_hub: bool = field(default=True, compare=False)  # False for an encoder whose name stands in a file

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder that the features were made with, loaded once; refused if its weights are others here."""
        name, version = self.reads.encoder, self.reads.encoder_version
        if name is None or self.reads.kind == "features":
            raise OperationError("this model reads features and has no encoder: give it rows of numbers.")
        with hub(self.allow_hub):
            encoder = create_encoder(name, self.reads.kind, self.reads.image_size)
        if version is not None and weights_of(encoder.version) != weights_of(version):
            raise OperationError(
                f"the model was fitted to features of {name} ({version}), here it is {encoder.version}: its features "
                "differ. Install that version, or fit again."
            )
        return encoder

    @property
    def class_counts(self) -> list[int] | None:  # type: ignore[override]
        known, names = self.facts.get("class_counts"), [str(name) for name in self.classes]
        if not isinstance(known, dict) or not all(isinstance(known.get(name), int) for name in names):
            return None
        return [known[name] for name in names]

    def described(self, data: str) -> dict[str, Any]:
        return {"method": str(self.facts.get("method", "head")), "model": self.reads.encoder or "linear"}

    def answer_features(self, features: np.ndarray) -> Answers:
        return self._answers(features, np.ones(len(features), dtype=bool))

    def answer(self, samples: Samples, rows: range, skip_unreadable: bool = False) -> Answers:
        features, kept = encode_rows(rows, samples, self.encoder, BATCH, skip_unreadable, REMEDY)
        if kept.any() and features.shape[1] != self.reads.width:
            raise InputError(
                f"the encoder {self.reads.encoder} gives {features.shape[1]} features, and the model was fitted to "
                f"{self.reads.width}: it is not the encoder of the fit."
            )
        return self._answers(features if kept.any() else np.empty((0, self.reads.width), np.float32), kept)

    def _answers(self, features: np.ndarray, kept: np.ndarray) -> Answers:
        points_to = None if self.shortcut is None else self.shortcut.answers(features)
        return Answers(features, linear_logits(features, self.coef, self.intercept), kept, points_to)

    def save(self, folder: Path) -> None:
        """Write the model folder, in the place of an earlier model; what told of that one goes."""
        with renewed(folder, WRITTEN) as aside:
            self.write(aside)

    def write(self, folder: Path) -> None:
        """Write the two files of the model."""
        facts: dict[str, Any] = {"kind": "head", "classes": self.classes.tolist(), "reads": self.reads.as_dict()}
        weights = {"coef": self.coef, "intercept": self.intercept}
        if self.shortcut is not None:
            facts["shortcut_points_to"] = self.shortcut.classes.tolist()
            weights |= {"shortcut_coef": self.shortcut.coef, "shortcut_intercept": self.shortcut.intercept}
        write_model(folder, {**facts, "facts": dict(self.facts)}, weights)


def linear_logits(features: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """As the estimators compute them, to the bit."""
    return features @ coef.T.astype(features.dtype) + intercept.astype(features.dtype)


def load_head(folder: Path, allow_hub: bool = False) -> HeadModel:
    """Read a model folder that may be a stranger's."""
    facts, weights = read_model(folder)
    origin = str(folder / FACTS)
    if facts.get("kind") != "head":
        raise InputError(f"{origin} holds a model of kind {facts.get('kind')!r}, which this icda does not know.")
    classes = _classes(facts.get("classes"), origin)
    reads = Reads.from_dict(facts.get("reads"), origin)
    coef, intercept = _layer(weights, "", len(classes), reads.width, folder)
    shortcut = None
    if (points_to := facts.get("shortcut_points_to")) is not None:
        numbers = range(len(classes))
        if not isinstance(points_to, list) or not all(type(k) is int and k in numbers for k in points_to):
            raise InputError(f"{origin}: shortcut_points_to must be numbers of classes.")
        weight, bias = _layer(weights, "shortcut_", len(points_to), reads.width, folder)
        shortcut = ShortcutReader(weight, bias, np.array(points_to))
    known = facts.get("facts")
    return HeadModel(classes, coef, intercept, reads, shortcut, known if isinstance(known, dict) else {}, allow_hub)


def _classes(values: object, origin: str) -> np.ndarray:
    if not isinstance(values, list) or len(values) < 2 or len({str(value) for value in values}) < len(values):
        raise InputError(f"{origin} must list at least two classes, each with a name of its own.")
    if len({type(value) for value in values}) > 1 or not isinstance(values[0], Label):
        raise InputError(f"{origin}: the classes must be all texts or all numbers.")
    longest = max(len(str(value)) for value in values)
    if (
        longest > LONGEST_NAME or longest * len(values) > LARGEST_NAMES
    ):  # as NumPy texts all take the room of the longest
        raise InputError(
            f"{origin}: {len(values)} classes with names of up to {longest} characters, at most {LONGEST_NAME} each and "
            f"{LARGEST_NAMES} in all are read."
        )
    return np.array(values)


def _layer(
    weights: Mapping[str, np.ndarray], prefix: str, rows: int, width: int, folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of a linear layer, of the right shapes and finite."""
    layer = []
    for name, shape in ((f"{prefix}coef", (rows, width)), (f"{prefix}intercept", (rows,))):
        value = weights.get(name)
        if value is None or value.shape != shape or value.dtype not in (np.float32, np.float64):
            got = "nothing" if value is None else f"{value.dtype} {value.shape}"
            raise InputError(f"{folder / WEIGHTS}: {name} must be floats of shape {shape}, got {got}.")
        if not np.isfinite(value).all():
            raise InputError(f"{folder / WEIGHTS}: {name} holds NaN or infinite values.")
        layer.append(value)
    return layer[0], layer[1]
