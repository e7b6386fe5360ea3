"""The JSON Schema of result.json, made from the types: `python tools/result_schema.py > docs/result_schema.json`."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from icda.results.run_result import SCHEMA_VERSION, EpochRecord, RunResult


def result_schema() -> dict[str, Any]:
    """The schema of a result.json of this version."""
    schema = _object(RunResult)
    version = {"type": "integer", "const": SCHEMA_VERSION, "description": "absent in files from before it existed"}
    schema["properties"] = {"schema_version": version, **schema["properties"]}
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "result.json of an icda run"}
    return {**title, **schema}


def _object(kind: type[Any]) -> dict[str, Any]:
    """A record's schema. Fields that are written inline become further properties of the record itself."""
    hints = get_type_hints(kind)
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for entry in fields(kind):
        place, hint = entry.metadata.get("inline"), hints[entry.name]
        if place is None:
            schema["properties"][entry.name] = _of(hint, kind is RunResult) | _words(entry)
            if entry.default is MISSING and entry.default_factory is MISSING:
                schema["required"].append(entry.name)
        elif isinstance(place, str):  # the beginning of the names
            schema["patternProperties"] = {f"^{place}": _of(get_args(hint)[1]) | _words(entry)}
    return {**schema, "additionalProperties": True}


def _words(entry: Any) -> dict[str, str]:
    return {"description": entry.metadata["description"]}


def _of(hint: Any, present: bool = False) -> dict[str, Any]:
    """The schema of a type; a result leaves a field that is None out, an epoch's record writes it as null."""
    from pydantic import TypeAdapter

    if present and NoneType in get_args(hint):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    if EpochRecord in get_args(hint):
        return {"type": "array", "items": _object(EpochRecord)}
    return TypeAdapter(hint).json_schema()


if __name__ == "__main__":
    print(json.dumps(result_schema(), indent=2))
