"""Typed records that are also the JSON objects they are written as: an epoch of a training, and the result of a run."""

from __future__ import annotations

import functools
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, get_type_hints

from icda.errors import InputError, InputTypeError
from icda.results.files import read_json, write_atomically
from icda.settings import check

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


def _described(description: str, default: Any = None) -> Any:
    """A field that a record may lack, such as one of an older version or one read from a ledger."""
    return field(default=default, metadata={"description": description})


def _inline(description: str, prefix: str | bool = True) -> Any:
    """A field whose entries stand among the others in JSON, behind a prefix if there is one."""
    return field(default_factory=dict, metadata={"description": description, "inline": prefix})


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
    stage: str = _described("name of the method's stage", "train")
    train_loss: float | None = _described("mean loss over the training samples")
    train_accuracy: float | None = _described(
        "accuracy while training; null for a method without one answer per sample"
    )
    learning_rate: float | None = _described("learning rate of the last step")
    figures: Mapping[str, Figure] = _inline("figures of the method itself")
    validation: Mapping[str, float | None] = _inline(
        "figures of the validation split, where the task has one", VALIDATION
    )
    seconds: float | None = _described("seconds the epoch took")

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


Fact: TypeAlias = str | int | Mapping[str, str] | None
# Rises when a field goes or changes its meaning; then `_migrate` reads the older ones. New fields do not raise it.
SCHEMA_VERSION = 1


@dataclass(frozen=True, eq=False)
class RunResult(JsonRecord):
    """What was trained on what, and what came out. Only `task` and `method` are always there.

    It is a mapping, too: `result["metrics"]["accuracy"]` reads what result.json holds. A field that is None is left out
    of the file. What another version wrote and this one does not know is kept in `others`.

    >>> result = RunResult("digits_lt", "icda", seed=3, metrics={"accuracy": 0.5})
    >>> result.seed, result["metrics"]["accuracy"], result.metric("nll"), dict(result)
    (3, 0.5, None, {'task': 'digits_lt', 'method': 'icda', 'seed': 3, 'metrics': {'accuracy': 0.5}})
    """

    task: str = field(metadata={"description": "name of the task"})
    method: str = field(metadata={"description": "name of the method"})
    model: str | None = _described("name of the model")
    seed: int | None = _described("seed of the run")
    split: str | None = _described("split that was evaluated")
    metrics: Mapping[str, Figure] | None = _described("figures of that split; one that cannot be known is null")
    selection: str | None = _described("rule that chose the epoch")
    config: Mapping[str, Any] | None = _described("all settings of the run, as in config.yaml")
    config_hash: str | None = _described("hash of the settings that shape the numbers")
    data_hash: str | None = _described("hash of the data")
    environment: Mapping[str, Fact] | None = _described("versions, machine, commit and plugins")
    class_names: Sequence[str] | None = _described("names of the classes, in their order")
    class_counts: Sequence[int] | None = _described("training samples of each class")
    group_names: Sequence[str] | None = _described("names of the groups, in their order; empty without groups")
    group_samples: Sequence[int] | None = _described("samples of each group in the evaluated split")
    confusion: Sequence[Sequence[int]] | None = _described("samples by true class (row) and predicted class (column)")
    found: str | None = _described("what a method that judges its data found and did, in words")
    selected_epoch: int | None = _described("epoch whose model was evaluated; only in a training's result")
    history: Sequence[EpochRecord] | None = _described("one record for each epoch; only in a training's result")
    seconds: float | None = _described("seconds the whole run took; only in a training's result")
    others: Mapping[str, Any] = _inline("fields of another version")

    def metric(self, name: str) -> float | None:
        """A metric that is one number; None if it was not measured."""
        value = (self.metrics or {}).get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def as_dict(self) -> dict[str, Any]:
        named = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "others"}
        plain = {name: _plain(value) for name, value in named.items() if value is not None}
        return {**plain, **self.others}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str = "the result") -> RunResult:
        """A result from the content of a result.json of this version or an older one."""
        if isinstance(values, RunResult):
            return values
        values = _migrate(values, origin)
        for name in ("task", "method"):
            if name not in values:
                raise InputError(f"{origin} has no {name!r}: give what a run wrote into result.json.")
        kinds = _kinds()
        own = {name: value for name, value in values.items() if name in kinds}
        check(own, kinds, f"{origin}: ")
        if own.get("history") is not None:
            own["history"] = [EpochRecord.from_dict(record, number) for number, record in enumerate(own["history"])]
        return cls(**own, others={name: value for name, value in values.items() if name not in kinds})

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """The result in a result.json."""
        return cls.from_dict(read_json(path), str(path))

    def to_json(self) -> str:
        """The text of result.json."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **self.as_dict()}, indent=1)

    def write(self, path: Path) -> None:
        """Write result.json as a whole: a reader sees the old file or the new one."""
        write_atomically(path, self.to_json().encode())


@functools.cache
def _kinds() -> dict[str, Any]:
    """What a file holds: of the history plain records."""
    kinds = {**get_type_hints(RunResult), "history": Sequence[Any] | None}
    return {name: kind for name, kind in kinds.items() if name != "others"}


def _plain(value: Any) -> Any:
    """Records and tuples as what JSON makes of them."""
    if isinstance(value, JsonRecord):
        return value.as_dict()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _migrate(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values under the names of this version. Files from before there was a version had the fields of version 1."""
    version = values.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise InputError(f"{origin} has schema version {version!r}; this icda reads up to {SCHEMA_VERSION}: upgrade.")
    return {name: value for name, value in values.items() if name != "schema_version"}
