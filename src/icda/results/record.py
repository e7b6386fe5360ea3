"""Typed records that are also the JSON objects they are written as."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from icda.errors import InputTypeError


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
