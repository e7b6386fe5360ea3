"""`icda list`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from icda.data import TASKS
from icda.methods import method_names, method_needs
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.selection import SELECTION_RULES


@dataclass
class ListArguments:
    """Show what icda knows by name."""

    what: tyro.conf.Positional[Literal["all", "tasks", "methods", "models", "selection"]] = "all"
    """Which names to show."""


def main(arguments: Sequence[str]) -> int:
    given = tyro.cli(ListArguments, args=list(arguments), prog="icda list")
    console = Console()
    tables = {"tasks": _tasks, "methods": _methods, "models": _models, "selection": _selection}
    for name, make in tables.items():
        if given.what in ("all", name):
            console.print(make())
    return 0


def _tasks() -> Table:
    return _table("tasks", [(name, _summary(TASKS.get(name))) for name in TASKS])


def _methods() -> Table:
    return _table("methods", [(name, _described(name)) for name in method_names()])


def _described(name: str) -> str:
    """What a method is, what it needs and its options, below each other: four columns do not fit a terminal."""
    cls = method_class(name)
    needs, options = ", ".join(sorted(method_needs(name))), ", ".join(option_names(cls))
    lines = [_summary(cls), f"needs: {needs}" if needs else "", f"options: {options}" if options else ""]
    return "\n".join(filter(None, lines))


def _models() -> Table:
    rows = [(name, _summary(MODELS.get(name))) for name in MODELS]
    rows.append(("hf:PATH", "A Hugging Face image or sequence classifier, from a folder or the hub (extra: hf)"))
    rows.append(("timm:NAME, torchvision:NAME", "A model of those libraries, if they are installed"))
    return _table("models", rows)


def _selection() -> Table:
    return _table("selection", [(name, SELECTION_RULES.get(name).description) for name in SELECTION_RULES])


def _table(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("name", min_width=max(len(word) for name, _ in rows for word in name.split()))  # typed, so not cut
    table.add_column("what it is")
    for row in rows:
        table.add_row(*map(Text, row))  # Text, not str: rich would read brackets as markup
    return table


def _summary(thing: Any) -> str:
    """The first line of a docstring; for a functools.partial with what it fixes."""
    function = getattr(thing, "func", thing)
    line = (function.__doc__ or "").strip().split("\n")[0].rstrip(".")
    if function is thing:
        return line
    fixed = [*map(str, thing.args), *(f"{name} {value}" for name, value in thing.keywords.items())]
    return f"{line} [{', '.join(fixed)}]"
