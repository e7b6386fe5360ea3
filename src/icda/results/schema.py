"""The JSON Schema of result.json, made from the types: `python -m icda.results.schema > docs/result_schema.json`."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from icda.results.run_result import SCHEMA_VERSION, RunResult

PLAIN = {str: "string", int: "integer", float: "number", type(None): "null"}


def result_schema() -> dict[str, Any]:
    """The schema of a result.json of this version.

    >>> schema = result_schema()
    >>> schema["required"], schema["properties"]["seed"]["type"]
    (['task', 'method'], 'integer')
    """
    schema = _object(RunResult)
    version = {"type": "integer", "const": SCHEMA_VERSION, "description": "absent in files from before it existed"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "result.json of an icda run",
        **schema,
        "properties": {"schema_version": version, **schema["properties"]},
    }


def _object(kind: type[Any]) -> dict[str, Any]:
    """A record's schema. Fields that are written inline become further properties of the record itself."""
    hints = get_type_hints(kind)
    named = [entry for entry in fields(kind) if "inline" not in entry.metadata]
    prefixed = {e.metadata["inline"]: e for e in fields(kind) if isinstance(e.metadata.get("inline"), str)}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            entry.name: {**_of(_present(hints[entry.name], kind)), "description": entry.metadata["description"]}
            for entry in named
        },
        "required": [entry.name for entry in named if entry.default is MISSING and entry.default_factory is MISSING],
        "additionalProperties": True,
    }
    if prefixed:
        schema["patternProperties"] = {
            f"^{prefix}": {**_of(get_args(hints[entry.name])[1]), "description": entry.metadata["description"]}
            for prefix, entry in prefixed.items()
        }
    return schema


def _present(hint: Any, kind: type[Any]) -> Any:
    """A result leaves a field that is None out; an epoch's record writes it as null."""
    if kind is not RunResult or get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    (present,) = [part for part in get_args(hint) if part is not type(None)]
    return present


def _of(hint: Any) -> dict[str, Any]:
    """The schema of a type."""
    if hint is Any:
        return {}
    if is_dataclass(hint) and isinstance(hint, type):
        return _object(hint)
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        plain = all(part in PLAIN for part in arguments)
        return {"type": [PLAIN[part] for part in arguments]} if plain else {"anyOf": [_of(part) for part in arguments]}
    if origin is Sequence:
        return {"type": "array", "items": _of(arguments[0])}
    assert origin is Mapping, f"no schema is known for {hint}"
    values = _of(arguments[1])
    return {"type": "object", **({"additionalProperties": values} if values else {})}


if __name__ == "__main__":
    print(json.dumps(result_schema(), indent=2))
