"""Runs as the page shows them: results, of which all but `task` and `method` may be missing, and what explains them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icda.errors import InputError

Result = Mapping[str, Any]  # a RunResult, or what a user read from a result.json
Explanations = Mapping[str, Any]  # what explain_run writes into explanations.json


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
    """A finite number as float; None for everything else, as a figure that was not measured."""
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


def entries(result: Result, key: str) -> list[Mapping[str, Any]]:
    """The dictionaries in the list under a key."""
    return [entry for entry in listing(result, key) if isinstance(entry, Mapping)]


def numbers(result: Result, key: str) -> list[float | None]:
    """The list under a key as numbers, None for what is none."""
    return [as_number(value) for value in listing(result, key)]


def matrix(result: Result, key: str) -> list[list[float]]:
    """The rows under a key; what is no number counts as 0."""
    rows = (row if isinstance(row, list | tuple) else [] for row in listing(result, key))
    return [[as_number(cell) or 0.0 for cell in row] for row in rows]


def class_name(result: Result, index: int) -> str:
    """A class's name, or its number where it has none."""
    names = listing(result, "class_names")
    return str(names[index]) if index < len(names) else str(index)


def run_title(result: Result) -> str:
    """What a reader calls this run."""
    seed = "" if result.get("seed") is None else f", seed {result['seed']}"
    return f"{result['method']} on {result['task']}{seed}"


@dataclass(frozen=True)
class Vocabulary:
    """Every class and group name of the page, numbered: two runs that share a name share its filter."""

    classes: Mapping[str, str] = field(default_factory=dict)  # name -> token
    groups: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, classes: Iterable[object], groups: Iterable[object] = ()) -> Vocabulary:
        named = (("c", classes), ("g", groups))
        return cls(*({name: f"{k}{n}" for n, name in enumerate(dict.fromkeys(map(str, own)))} for k, own in named))

    def tokens(self, names: Iterable[str]) -> str:
        """Tokens of classes, in the order of their names."""
        return " ".join(self.classes.get(name, "-") for name in names)

    def filters(self, *classes: object, group: object = None) -> dict[str, object]:
        """Attributes of a row or card that stands for these classes and this group; unknown ones filter nothing."""
        tokens = [self.classes[name] for name in dict.fromkeys(map(str, classes)) if name in self.classes]
        attributes: dict[str, object] = {"data_class": " ".join(tokens)} if tokens else {}
        return attributes | ({"data_group": self.groups[str(group)]} if str(group) in self.groups else {})


@dataclass(frozen=True)
class Run:
    """A result with what explains it; `key` begins the id of every part, so that ids stay unique on the page."""

    result: Result
    explanations: Explanations = field(default_factory=dict)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    key: str = ""

    def part(self, name: str) -> Mapping[str, Any]:
        """A part of the explanations, empty if the run has none."""
        return mapping(self.explanations, name)

    def class_name(self, index: object) -> str:
        number = whole(index)
        return "" if number is None else class_name(self.result, number)

    def group_name(self, index: object) -> str:
        number = whole(index)
        names = listing(self.result, "group_names")
        return "" if number is None else str(names[number]) if number < len(names) else str(number)

    def filters(self, *classes: object, group: object = None) -> dict[str, object]:
        """Attributes of a row or card that stands for these classes and this group, given by their numbers."""
        return self.vocabulary.filters(*map(self.class_name, classes), group=self.group_name(group))

    def class_tokens(self, count: int) -> str:
        """Tokens of the first `count` classes, in their order."""
        return self.vocabulary.tokens(map(self.class_name, range(count)))


def collect_runs(results: Sequence[Result], explanations: Sequence[Explanations | None] | None = None) -> list[Run]:
    """Results with their explanations, checked, and one vocabulary for all."""
    check_results(results)
    explained = [None] * len(results) if explanations is None else list(explanations)
    if len(explained) != len(results):
        raise InputError(
            f"a report of {len(results)} results takes as many explanations, got {len(explained)}: "
            "pass None for a run that has none."
        )
    for position, part in enumerate(explained):
        if part is not None and not isinstance(part, Mapping):
            raise InputError(
                f"explanation {position} is a {type(part).__name__}, not a dictionary: load explanations.json."
            )
    classes = (name for result in results for name in _class_names(result))
    judged = (list(mapping(mapping(result, "metrics"), "per_group_accuracy")) for result in results)
    groups = (listing(result, "group_names") or own for result, own in zip(results, judged, strict=True))
    vocabulary, alone = Vocabulary.of(classes, itertools.chain.from_iterable(groups)), len(results) == 1
    return [
        Run(result, part or {}, vocabulary, "" if alone else f"run-{number}-")
        for number, (result, part) in enumerate(zip(results, explained, strict=True), start=1)
    ]


def evaluated_samples(result: Result) -> list[int]:
    """Samples of each true class in the split that was evaluated, empty without a confusion matrix."""
    return [round(sum(row)) for row in matrix(result, "confusion")]


def whole(value: object) -> int | None:
    """A class or group number; None for anything else."""
    number = as_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def _class_names(result: Result) -> list[str]:
    known = len(listing(mapping(result, "metrics"), "per_class_accuracy")) or len(listing(result, "class_names"))
    return [class_name(result, index) for index in range(known)]
