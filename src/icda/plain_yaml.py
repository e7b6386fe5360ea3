"""YAML that somebody wrote: values only, and no more of them than a file of settings has."""

from __future__ import annotations

from typing import Any

import yaml

from icda.errors import InputError

LONGEST = 1_000_000  # characters
MOST = 100_000  # values, each alias counted as what it stands for


def read_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text; what would grow without measure when it is copied is refused.

    >>> read_yaml("{epochs: 3, milestones: [0.5]}", "a.yaml")
    {'epochs': 3, 'milestones': [0.5]}
    >>> read_yaml("a: &a [1]\\nb: *a", "a.yaml")
    {'a': [1], 'b': [1]}
    >>> read_yaml("a: [", "a.yaml")
    Traceback (most recent call last):
    icda.errors.InputError: a.yaml cannot be read as YAML: expected the node content, ... (line 1, column 5).
    """
    if len(text) > LONGEST:
        raise InputError(f"{origin} has {len(text)} characters, expected settings of at most {LONGEST}.")
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None and _size(node, {}) > MOST:
            raise InputError(f"{origin} stands for more than {MOST} values, by its aliases: write out what you need.")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise InputError(f"{origin} cannot be read as YAML: {getattr(error, 'problem', error)}{where}.") from error
    except RecursionError as error:
        raise InputError(f"{origin} cannot be read as YAML: it is nested too deeply.") from error
    except ValueError as error:  # such as the date 2020-99-99
        if isinstance(error, InputError):
            raise
        raise InputError(f"{origin} cannot be read as YAML: {error}.") from error


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """Values that a node stands for; one that holds itself stands for infinitely many."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = float("inf")  # as long as its parts are counted
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        parts = node.value
    elif isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    known[id(node)] = 1.0 + sum(_size(part, known) for part in parts)
    return known[id(node)]
