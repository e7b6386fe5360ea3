"""Typed records that are also the JSON objects they are written as; one epoch of a training, as log.jsonl holds it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, TypeAlias

from icda.errors import InputError, InputTypeError

Figure: TypeAlias = Any  # a number, text, None, or a list or dict of them: what JSON can hold
VALIDATION = "validation_"


class JsonRecord(dict[str, Any]):
    """A read-only dict of `as_dict()`: `record.seed` and `record["seed"]` are the same, and `json.dumps` takes it.

    Subclasses are frozen dataclasses with `from_dict`; two are equal when their JSON is.
    """

    def __post_init__(self) -> None:
        super().update(self.as_dict())

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the order in which they are written."""

    @classmethod
    @abstractmethod
    def from_dict(cls, values: dict[str, Any]) -> JsonRecord:
        """The record that `as_dict` was of."""

    def __reduce__(self) -> tuple[Callable[..., JsonRecord], tuple[dict[str, Any]]]:
        return type(self).from_dict, (self.as_dict(),)


def _refuse(self: JsonRecord, *_: object, **__: object) -> NoReturn:
    raise InputTypeError(f"a {type(self).__name__} cannot be changed: dataclasses.replace makes another one.")


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(JsonRecord, _name, _refuse)


@dataclass(frozen=True, eq=False)
class EpochRecord(JsonRecord):
    """Figures of one epoch. In JSON the method's own figures and those of the validation split stand among the others.

    >>> record = EpochRecord(0, "train", 1.5, 0.25, 0.1, {"temperature": 3.0}, {"accuracy": 0.5}, seconds=2.0)
    >>> record["validation_accuracy"], record.validation["accuracy"], record["temperature"]
    (0.5, 0.5, 3.0)
    >>> EpochRecord.from_dict(record.as_dict()) == record
    True
    """

    epoch: int = field(metadata={"description": "number of the epoch, from 0"})
    stage: str = field(default="train", metadata={"description": "name of the method's stage"})
    train_loss: float | None = field(default=None, metadata={"description": "mean loss over the training samples"})
    train_accuracy: float | None = field(
        default=None,
        metadata={"description": "accuracy while training; null for a method without one answer per sample"},
    )
    learning_rate: float | None = field(default=None, metadata={"description": "learning rate of the last step"})
    figures: Mapping[str, Figure] = field(
        default_factory=dict, metadata={"description": "figures of the method itself", "inline": True}
    )
    validation: Mapping[str, float | None] = field(
        default_factory=dict,
        metadata={"description": "figures of the validation split, where the task has one", "inline": VALIDATION},
    )
    seconds: float | None = field(default=None, metadata={"description": "seconds the epoch took"})

    def as_dict(self) -> dict[str, Any]:
        *before, seconds = [entry.name for entry in fields(self) if "inline" not in entry.metadata]
        validation = {f"{VALIDATION}{name}": value for name, value in self.validation.items()}
        return {name: getattr(self, name) for name in before} | {**self.figures, **validation, seconds: self.seconds}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], number: int = 0) -> EpochRecord:
        """A record from plain values; one without a number is the epoch `number`."""
        if isinstance(values, EpochRecord):
            return values
        if not isinstance(values, Mapping):
            raise InputError(
                f"epoch {number} of the history is a {type(values).__name__}, expected its figures by name."
            )
        own = {entry.name for entry in fields(cls) if "inline" not in entry.metadata}
        parts: dict[str, dict[str, Any]] = {"own": {"epoch": number}, "figures": {}, "validation": {}}
        for name, value in values.items():
            part = "own" if name in own else "validation" if name.startswith(VALIDATION) else "figures"
            parts[part][name.removeprefix(VALIDATION) if part == "validation" else name] = value
        return cls(**parts["own"], figures=parts["figures"], validation=parts["validation"])
