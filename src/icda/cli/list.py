"""`icda list`"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import tyro
from rich.table import Table
from rich.text import Text

from icda.data import TASKS
from icda.losses import LOSSES
from icda.methods import METHODS, method_names, method_needs
from icda.methods.create import method_class, option_names
from icda.metrics import METRICS, Metric
from icda.models import MODELS
from icda.plugins import PluginError
from icda.registry import Registry
from icda.report.formatting import figure
from icda.selection import SELECTION_RULES
from icda.terminal import make_console

T = TypeVar("T")
Rows = list[tuple[str, str]]
FOREIGN = (
    ("hf:PATH", "A Hugging Face image or sequence classifier, from a folder or the hub (extra: hf)"),
    ("timm:NAME, torchvision:NAME", "A model of those libraries, if they are installed"),
)
FIRST = "robust"  # what to take if one does not know what is wrong
ANY_METRIC = ("validation_METRIC", "best value of any metric on validation data (`icda list metrics`)")


@dataclass
class ListArguments:
    """Show what icda knows by name."""

    what: tyro.conf.Positional[Literal["all", "tasks", "methods", "models", "selection", "metrics"]] = "all"
    """Which names to show."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(ListArguments, args=list(arguments), prog="icda list")
    console = make_console()
    for name, rows in TABLES.items():
        if options.what in ("all", name):
            console.print(_table(name, rows()))
    return 0


def _described(name: str) -> str:
    """What a method is, what it needs and its options, below each other: four columns do not fit a terminal."""
    registry: Registry[Any] = METHODS if name in METHODS else LOSSES
    try:
        needs, options = ", ".join(sorted(method_needs(name))), ", ".join(option_names(method_class(name)))
    except PluginError:  # its summary says so
        needs = options = ""
    summary = described(registry, name, _summary)
    lines = [summary, f"needs: {needs}" if needs else "", f"options: {options}" if options else ""]
    return "\n".join(filter(None, lines))


def _direction(metric: Metric) -> str:
    words = figure(metric.name)
    return f"{words.meaning or words.label} ({'higher' if metric.higher_is_better else 'lower'} is better)"


def described(registry: Registry[T], name: str, describe: Callable[[T], str]) -> str:
    """What an entry is, and whose if it is not ours; why it cannot be used, if its plugin is broken."""
    try:
        text = describe(registry.get(name))
    except PluginError as error:
        return f"broken: {error}"
    owner = registry.owner(name)
    return text if owner is None else f"{text} ({owner})"


def _rows(registry: Registry[T], describe: Callable[[T], str], *more: tuple[str, str]) -> Rows:
    return [*((name, described(registry, name, describe)) for name in registry), *more]


def _table(title: str, rows: Rows) -> Table:
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


TABLES: dict[str, Callable[[], Rows]] = {
    "tasks": lambda: _rows(TASKS, _summary),
    "methods": lambda: [(name, _described(name)) for name in sorted(method_names(), key=lambda name: name != FIRST)],
    "models": lambda: _rows(MODELS, _summary, *FOREIGN),
    "selection": lambda: _rows(SELECTION_RULES, lambda rule: rule.description, ANY_METRIC),
    "metrics": lambda: _rows(METRICS, _direction),
}
