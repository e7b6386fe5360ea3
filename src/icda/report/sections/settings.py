"""What is needed to run it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icda.report.markup import Markup, element, section, table
from icda.report.results import Result, mapping


def configuration(result: Result, level: int) -> Markup:
    """Every setting of the run; empty when none was kept."""
    return _settings("Configuration", "Settings of this run", mapping(result, "config"), level)


def environment(result: Result, level: int) -> Markup:
    """Versions and machine; empty when none was kept."""
    return _settings("Environment", "Software and machine of this run", mapping(result, "environment"), level)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names with their values as text.

    >>> list(flatten({"lr": 0.1, "loss": {"beta": 0.1, "switches": ["a", "b"]}}))
    [('lr', '0.1'), ('loss.beta', '0.1'), ('loss.switches', 'a, b')]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{key}", str(value)


def _settings(title: str, caption: str, settings: Mapping[str, Any], level: int) -> Markup:
    if not settings:
        return Markup("")
    rows = [(element("code", name), value) for name, value in flatten(settings)]
    return section(title, level, element("div", table(caption, ["Name", "Value"], rows, names=2), class_="settings"))
