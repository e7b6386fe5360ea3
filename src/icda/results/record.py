"""Typed records that can also be read as the JSON objects they are written as."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any


class JsonRecord(Mapping[str, Any]):
    """A read-only mapping over `as_dict()`: `record.seed` and `record["seed"]` are the same, and two equal each other
    when their JSON does."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the order in which they are written."""

    @cached_property
    def _values(self) -> dict[str, Any]:
        return self.as_dict()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
