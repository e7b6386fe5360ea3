"""YAML that somebody wrote: values only, and no aliases, which can stand for more than memory holds."""

from __future__ import annotations

from typing import Any

import yaml

from icda.errors import InputError


def read_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text.

    >>> read_yaml("{epochs: 3, milestones: [0.5]}", "a.yaml")
    {'epochs': 3, 'milestones': [0.5]}
    >>> read_yaml("a: [", "a.yaml")
    Traceback (most recent call last):
    icda.errors.InputError: a.yaml cannot be read as YAML: expected the node content, ... (line 1, column 5).
    """
    try:
        aliased = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
        value = None if aliased else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise InputError(f"{origin} cannot be read as YAML: {getattr(error, 'problem', error)}{where}.") from error
    except (RecursionError, ValueError) as error:  # nested too deeply; or such as the date 2020-99-99
        raise InputError(f"{origin} cannot be read as YAML: {error}.") from error
    if aliased:
        raise InputError(f"{origin} has YAML aliases (*name): write out what they stand for.")
    return value
