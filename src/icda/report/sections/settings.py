"""What is needed to run it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from icda.report.markup import Markup, element, section, table
from icda.report.results import mapping
from icda.report.runs import Run


def configuration(run: Run, level: int) -> Markup:
    """Every setting of the run; empty when none was kept."""
    return _settings("Settings", "Settings of this run", mapping(run.result, "config"), level)


def environment(run: Run, level: int) -> Markup:
    """Versions and machine; empty when none was kept."""
    return _settings("Environment", "Software and machine of this run", mapping(run.result, "environment"), level)


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
    # A setting that was not set says nothing: the reader looks for those that were.
    rows = [(element("code", name), value) for name, value in flatten(settings) if value not in ("None", "{}", "")]
    if not rows:
        return Markup("")
    return section(title, level, element("div", table(caption, ["Name", "Value"], rows, names=2), class_="settings"))
