"""Mean ± standard deviation over seeds, a row for each task, method and way it was run."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import rich.console
import rich.table
import rich.text

from icda.metrics.registry import OWN_METRICS
from icda.report.formatting import heading, mean_and_deviation
from icda.report.results import Result, check_results, mapping, metric
from icda.results.ledger import options_text

_PADDING = 3  # of a column in the terminal: a line and a space on either side
COMPARED = tuple(name for name in OWN_METRICS if name not in ("average_group_accuracy", "macro_precision", "nll"))


@dataclass(frozen=True)
class MetricSummary:
    """One metric over the runs of one method on one task that were run the same way.

    `method` says in brackets what tells these runs from others of the same method on the same task.
    `n` counts the runs that have the metric: without any `mean` is None, with fewer than two `std` (ddof = 1) is None.
    """

    task: str
    method: str
    selection: str
    metric: str
    mean: float | None
    std: float | None
    n: int

    def __str__(self) -> str:
        return mean_and_deviation(self.metric, self.mean, self.std)


@dataclass(frozen=True)
class Table:
    """A table as text, before Markdown, terminal or HTML; the first `names` columns are words, the others figures."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int


def summarise(results: Sequence[Result], metric_name: str) -> list[MetricSummary]:
    """One row for each task, method and way it was run, in the order of their first result.

    Runs of different options, models, epochs, attributes or selection rules are never averaged: they get a row each.

    >>> runs = [{"task": "t", "method": "icda", "seed": s, "metrics": {"accuracy": a}} for s, a in [(0, 0.7), (1, 0.8)]]
    >>> [(row.method, str(row), row.n) for row in summarise(runs, "accuracy")]
    [('icda', '75.00 ± 7.07', 2)]
    """
    rows = []
    for (task, method, selection), runs in _grouped(results).items():
        values = [value for run in runs if (value := metric(run, metric_name)) is not None]
        mean = statistics.fmean(values) if values else None
        std = statistics.stdev(values) if len(values) > 1 else None
        rows.append(MetricSummary(task, method, selection, metric_name, mean, std, len(values)))
    return rows


def compared(results: Sequence[Result]) -> tuple[str, ...]:
    """The metrics a comparison shows: our own, then those of plugins, in the order of the results."""
    added = [name for result in results for name in mapping(result, "metrics") if name not in OWN_METRICS]
    return (
        *COMPARED,
        *(name for name in dict.fromkeys(added) if any(metric(run, name) is not None for run in results)),
    )


def comparison_table(results: Sequence[Result], metrics: Sequence[str] | None = None, caption: str = "") -> Table:
    """Tasks and methods down, metrics across; a metric that no run has gets no column.

    >>> runs = [{"task": "t", "method": m, "seed": 0, "metrics": {"accuracy": 0.5}} for m in ("icda", "ce")]
    >>> print(to_markdown(comparison_table(runs)))
    | Task | Method | n | Accuracy (%) |
    |:--|:--|--:|--:|
    | t | icda | 1 | 50.00 |
    | t | ce | 1 | 50.00 |
    """
    grouped = _grouped(results)
    columns = {name: summarise(results, name) for name in (compared(results) if metrics is None else metrics)}
    columns = {name: rows for name, rows in columns.items() if any(row.n for row in rows)}
    several_rules = len({selection for _, _, selection in grouped}) > 1
    names = ("Task", "Method", "Selection") if several_rules else ("Task", "Method")
    rows = []
    for position, (key, runs) in enumerate(grouped.items()):
        summaries = [column[position] for column in columns.values()]
        cells = [str(row) if row.n in (0, len(runs)) else f"{row} (n = {row.n})" for row in summaries]
        rows.append((*key[: len(names)], _count(runs), *cells))
    return Table(caption, (*names, "n", *map(heading, columns)), tuple(rows), len(names))


def label_methods(results: Sequence[Result]) -> list[str]:
    """The method of each result, with what tells it from other runs of the same method on the same task.

    Only settings that differ among these are named, so that seeds of one thing keep the bare name. A name that ends in
    its options already, as those from a ledger do, is still the same method.
    """
    check_results(results)
    seen: dict[tuple[str, str], list[dict[str, str]]] = {}
    for result in results:
        seen.setdefault((str(result["task"]), _bare(result)), []).append(_settings(result))
    differing = {
        kind: {name for name in settings[0] if len({one[name] for one in settings}) > 1}
        for kind, settings in seen.items()
    }
    return [_label(result, differing[str(result["task"]), _bare(result)]) for result in results]


def to_markdown(table: Table) -> str:
    """The table for a README or an issue."""
    lines = [table.header, tuple(":--" if i < table.names else "--:" for i in range(len(table.header))), *table.rows]
    text = [f"| {' | '.join(map(_escape_markdown, line))} |" for line in lines]
    text[1] = text[1].replace(" ", "")
    return "\n".join([f"{_escape_markdown(table.caption)}\n", *text] if table.caption else text)


@dataclass(frozen=True)
class TerminalTable:
    """A table that is drawn in as many parts as the width of the terminal asks for."""

    table: Table

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[rich.table.Table]:
        for part in split_to_width(self.table, options.max_width):
            yield _draw(part, options.max_width)


def to_rich(table: Table) -> TerminalTable:
    """The table for the terminal: `rich.print(to_rich(table))`."""
    return TerminalTable(table)


def split_to_width(table: Table, width: int) -> list[Table]:
    """Tables of all rows and some columns of figures, each narrow enough to be drawn without cutting a word."""
    columns = list(zip(table.header, *table.rows, strict=True))
    needs = [narrowest + _PADDING for narrowest, _ in _extents(table)]
    names = columns[: table.names]
    room = start = width - 1 - sum(needs[: table.names])
    parts: list[list[tuple[str, ...]]] = [[]]
    for column, need in zip(columns[table.names :], needs[table.names :], strict=True):
        if parts[-1] and need > room:
            parts.append([])
            room = start
        parts[-1].append(column)
        room -= need
    cut = [list(zip(*names, *part, strict=True)) for part in parts]
    return [replace(table, header=header, rows=tuple(rows)) for header, *rows in cut]


def _extents(table: Table) -> list[tuple[int, int]]:
    """The least and the full width of each column: names wrap between words, figures stay on one line."""
    extents = []
    for position, (name, *cells) in enumerate(zip(table.header, *table.rows, strict=True)):
        wrapped = [name, *cells] if position < table.names else [name]
        words = [len(word) for cell in wrapped for word in cell.split()]
        narrowest = max([*words, *(len(cell) for cell in cells if position >= table.names)], default=1)
        extents.append((narrowest, max(map(len, (name, *cells)))))
    return extents


def _draw(table: Table, width: int) -> rich.table.Table:
    drawn = rich.table.Table(title=rich.text.Text(table.caption) if table.caption else None)
    extents = _extents(table)
    room = max(width - 1 - sum(narrowest + _PADDING for narrowest, _ in extents), 0)
    for position, (name, (narrowest, full)) in enumerate(zip(table.header, extents, strict=True)):
        more = min(full - narrowest, room)  # rich itself would shrink all columns alike and cut words
        room -= more
        justify: Literal["left", "right"] = "left" if position < table.names else "right"
        drawn.add_column(rich.text.Text(name), justify=justify, width=narrowest + more)
    for row in table.rows:
        # Text, not str: rich would read a method called "[red]" as markup.
        drawn.add_row(*map(rich.text.Text, row))
    return drawn


def _grouped(results: Sequence[Result]) -> dict[tuple[str, str, str], list[Result]]:
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result, method in zip(results, label_methods(results), strict=True):
        key = (str(result["task"]), method, str(result.get("selection") or ""))
        groups.setdefault(key, []).append(result)
    return groups


def _label(result: Result, differing: set[str]) -> str:
    bare = _bare(result)
    named = differing | {"options"} if bare != str(result["method"]) else differing
    words = ", ".join(value for name, value in _settings(result).items() if value and name in named)
    return f"{bare} ({words})" if words else bare


def _settings(result: Result) -> dict[str, str]:
    """What makes a run another thing than a further seed, in words; the selection rule has a column of its own."""
    config = mapping(result, "config")
    epochs = config.get("epochs")
    return {
        "options": _options(config),
        "model": str(result.get("model") or config.get("model") or ""),
        "epochs": "" if epochs in (None, "") else f"{epochs} epoch{'' if str(epochs) == '1' else 's'}",
        "attributes": f"attributes {config.get('attributes') or 'known'}",  # runs from before there was a choice
    }


def _bare(result: Result) -> str:
    return str(result["method"]).removesuffix(f" ({_options(mapping(result, 'config'))})")


def _options(config: Mapping[str, Any]) -> str:
    """Options of the method as a ledger writes them; a ledger's own are text already."""
    options = config.get("options") or ""
    return options_text(options) if isinstance(options, Mapping) else str(options)


def _count(runs: Sequence[Result]) -> str:
    # A seed that stands twice means that settings not named here differ, such as the learning rate: the reader must see it.
    seeds = {str(run.get("seed")) for run in runs}
    return f"{len(runs)}" if len(seeds) == len(runs) or "None" in seeds else f"{len(runs)} ({len(seeds)} seeds)"


def _escape_markdown(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
