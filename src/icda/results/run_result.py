"""The result of one run: the content of result.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, get_type_hints

from icda.errors import InputError
from icda.results.epoch import EpochRecord, Figure, JsonRecord
from icda.results.files import read_json, write_atomically
from icda.settings import check

Fact: TypeAlias = str | int | Mapping[str, str] | None
# Rises when a field goes or changes its meaning; then `_migrate` reads the older ones. New fields do not raise it.
SCHEMA_VERSION = 1


def _described(description: str) -> Any:
    """A field that a result may lack, such as one of an older version or one read from a ledger."""
    return field(default=None, metadata={"description": description})


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
    others: Mapping[str, Any] = field(
        default_factory=dict, metadata={"description": "fields of another version", "inline": True}
    )

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
