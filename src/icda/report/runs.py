"""One run as the page shows it: its result, its explanations, and the tokens its filters go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icda.errors import InputError
from icda.report.results import Result, as_number, check_results, class_name, listing, mapping

Explanations = Mapping[str, Any]  # what explain_run writes into explanations.json


@dataclass(frozen=True)
class Vocabulary:
    """Every class and group name of the page, numbered: two runs that share a name share its filter."""

    classes: Mapping[str, str] = field(default_factory=dict)  # name -> token
    groups: Mapping[str, str] = field(default_factory=dict)


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
        """Attributes of a row or card that stands for these classes and this group.

        >>> Run({"class_names": ["cat"]}, vocabulary=Vocabulary({"cat": "c0"})).filters(0)
        {'data_class': 'c0'}
        """
        names = dict.fromkeys(self.class_name(index) for index in classes)
        tokens = [self.vocabulary.classes[name] for name in names if name in self.vocabulary.classes]
        attributes: dict[str, object] = {"data_class": " ".join(tokens)} if tokens else {}
        if (token := self.vocabulary.groups.get(self.group_name(group))) is not None:
            attributes["data_group"] = token
        return attributes

    def class_tokens(self, count: int) -> str:
        """Tokens of the first `count` classes, in their order."""
        return " ".join(self.vocabulary.classes.get(self.class_name(i), "-") for i in range(count))


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
    classes = dict.fromkeys(name for result in results for name in _class_names(result))
    groups = dict.fromkeys(name for result in results for name in _group_names(result))
    vocabulary = Vocabulary(
        {name: f"c{number}" for number, name in enumerate(classes)},
        {name: f"g{number}" for number, name in enumerate(groups)},
    )
    alone = len(results) == 1
    return [
        Run(result, part or {}, vocabulary, "" if alone else f"run-{number}-")
        for number, (result, part) in enumerate(zip(results, explained, strict=True), start=1)
    ]


def evaluated_samples(result: Result) -> list[int]:
    """Samples of each true class in the split that was evaluated, empty without a confusion matrix."""
    rows = [row if isinstance(row, list | tuple) else [] for row in listing(result, "confusion")]
    return [round(sum(as_number(cell) or 0.0 for cell in row)) for row in rows]


def whole(value: object) -> int | None:
    """A class or group number; None for anything else.

    >>> whole(3), whole(3.0), whole(None), whole(-1)
    (3, 3, None, None)
    """
    number = as_number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def _class_names(result: Result) -> list[str]:
    known = len(listing(mapping(result, "metrics"), "per_class_accuracy")) or len(listing(result, "class_names"))
    return [class_name(result, index) for index in range(known)]


def _group_names(result: Result) -> list[str]:
    named = listing(result, "group_names") or list(mapping(mapping(result, "metrics"), "per_group_accuracy"))
    return [str(name) for name in named]
