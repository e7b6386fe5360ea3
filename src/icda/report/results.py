"""Reading result dictionaries, of which all but `task` and `method` may be missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from icda.errors import InputError

Result = Mapping[str, Any]  # a RunResult, or what a user read from a result.json


def check_results(results: Sequence[Result]) -> None:
    """Raise unless there is at least one result and each says its task and its method."""
    if isinstance(results, Mapping):
        raise InputError("a report takes a list of results, got one result: wrap it as [result].")
    if not results:
        raise InputError("a report needs at least one result, got none: pass the contents of a result.json.")
    for position, result in enumerate(results):
        if not isinstance(result, Mapping):
            raise InputError(f"result {position} is a {type(result).__name__}, not a dictionary: load result.json.")
        for key in ("task", "method"):
            if key not in result:
                raise InputError(f"result {position} has no {key!r}: pass the contents of a result.json.")


def as_number(value: object) -> float | None:
    """A finite number as float; None for everything else, as a figure that was not measured.

    >>> as_number(3), as_number(float("nan")), as_number("3"), as_number(True)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def metric(result: Result, name: str) -> float | None:
    """A metric that is one number, None if the result lacks it."""
    return as_number(mapping(result, "metrics").get(name))


def mapping(result: Result, key: str) -> Mapping[str, Any]:
    """The dictionary under a key, empty if it is missing."""
    value = result.get(key)
    return value if isinstance(value, Mapping) else {}


def listing(result: Result, key: str) -> list[Any]:
    """The list under a key, empty if it is missing."""
    value = result.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def class_name(result: Result, index: int) -> str:
    """A class's name, or its number where it has none.

    >>> class_name({"class_names": ["cat"]}, 0), class_name({}, 7)
    ('cat', '7')
    """
    names = listing(result, "class_names")
    return str(names[index]) if index < len(names) else str(index)


def run_title(result: Result) -> str:
    """What a reader calls this run.

    >>> run_title({"task": "waterbirds", "method": "icda", "seed": 3})
    'icda on waterbirds, seed 3'
    """
    seed = "" if result.get("seed") is None else f", seed {result['seed']}"
    return f"{result['method']} on {result['task']}{seed}"
