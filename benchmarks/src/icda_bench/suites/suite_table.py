"""A suite and its ledger as Markdown: the paper's figure, ours, and what they say to each other."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from icda.results.ledger import options_text
from icda.training import TrainConfig
from icda_bench.ledger import read_ledger
from icda_bench.markdown import markdown, spread
from icda_bench.suites.suite import Column, Suite, SuiteRow, cell_config
from icda_bench.suites.verdict import Entry, PaperVerdict, judge

SHOWN_TIERS = ("paper", "cpu")  # in this order of preference; smoke runs are no measurement
LONG = "long"  # shown beside the tier above, with the rows that were run
WORST = "worst_group_accuracy"
NORMAL = 1.96  # two-sided, 95 %
TITLES = ["method", "the paper", "ours, mean ± std (n)", "status"]


@dataclass(frozen=True)
class Line:
    """One row of a column as it is shown: figures as the paper prints them, and the verdict.

    `interval` is that of a worst group pooled over folds.
    """

    row: SuiteRow
    paper: float | None
    values: tuple[float, ...]
    verdict: PaperVerdict
    interval: tuple[float, float] | None = None


def suite_table(suite: Suite, rows: Sequence[dict[str, str]]) -> str:
    """One table per column that was run, with a line above it that says on what; the other columns share one."""
    tiers = {column.key: tier_shown(suite, column, rows) for column in suite.columns}
    parts, absent = [], []
    for column in suite.columns:
        if long := _long_lines(suite, column, rows):
            parts.append(column_text(suite, column, LONG, long))
        if tier := tiers[column.key]:
            parts.append(column_text(suite, column, tier, column_lines(suite, column, tier, rows)))
        if not long and not tier:
            absent.append(column)
    return "\n\n".join([*parts, *_absent_text(suite, absent), *_notes(suite)])


def overview_table(suite: Suite, rows: Sequence[dict[str, str]], ending: str = "") -> str:
    """Ours alone, a line per method and a column per table; with `ending`, only of columns whose title ends with it."""
    shown = []
    for column in (column for column in suite.columns if column.title.endswith(ending)):
        title = column.title.removesuffix(ending)
        if long := _long_lines(suite, column, rows):
            shown.append((f"{title}, tier `long`", long))
        if tier := tier_shown(suite, column, rows):
            shown.append((title, column_lines(suite, column, tier, rows)))
    figures = [
        {line.row.key: spread([_shown(suite, value) or 0.0 for value in line.values], digits=1) for line in lines}
        for _, lines in shown
    ]
    body = [[row.title, *(column.get(row.key, "") for column in figures)] for row in suite.rows]
    return markdown(["method", *(title for title, _ in shown)], [line for line in body if any(line[1:])])


def suite_rows(suite: str, results: Path) -> list[dict[str, str]]:
    """The ledger of a suite; none if nothing was run yet."""
    path = results / f"{suite}.csv"
    return read_ledger(path) if path.exists() else []


def column_lines(suite: Suite, column: Column, tier: str, rows: Iterable[dict[str, str]]) -> list[Line]:
    """The rows of a column with what was measured in a tier."""
    measured = {row.key: measured_points(suite, column, row, tier, rows) for row in suite.rows}
    intervals = {row.key: _interval(suite, column, row, tier, rows) for row in suite.rows}
    entries = [
        Entry(
            row.key,
            row.title,
            suite.paper_points(row, column),
            measured[row.key],
            group="metadata" if row.metadata else "",
            own=row.own,
            below=row.below,
            error=0.0 if interval is None else (interval[1] - interval[0]) / (2 * NORMAL),
        )
        for row in suite.rows
        for interval in [intervals[row.key]]
    ]
    verdicts = judge(entries, suite.reference, at_paper_tier=tier == "paper")
    verdicts |= {row.key: PaperVerdict("cited") for row in suite.rows if row.method is None}
    return [
        Line(
            row,
            _shown(suite, suite.paper_points(row, column)),
            measured[row.key],
            verdicts[row.key],
            intervals[row.key],
        )
        for row in suite.rows
        if _belongs(column, row, tier)
    ]


def measured_points(
    suite: Suite, column: Column, row: SuiteRow, tier: str, rows: Iterable[dict[str, str]]
) -> tuple[float, ...]:
    """The suite's metric in per cent of all ledger rows of a cell, by seed."""
    runs = _ledger_lines(suite, column, row, tier, rows)
    return tuple(100 * pooled(lines, suite.metric_of(column)) for lines in runs)


def _ledger_lines(
    suite: Suite, column: Column, row: SuiteRow, tier: str, rows: Iterable[dict[str, str]]
) -> list[list[dict[str, str]]]:
    """The ledger's lines of a cell by seed, one for each fold; a seed that lacks a fold is left out."""
    if row.method is None or tier not in column.places or not _belongs(column, row, tier):
        return []
    folds = column.places[tier].fold_numbers()
    identities = {_identity(cell_config(suite, tier, column, row, fold=fold)): fold for fold in folds}
    by_seed: dict[int, dict[int, dict[str, str]]] = {}
    for line in rows:
        fold = identities.get(_ledger_identity(line))
        if line["tier"] == tier and fold is not None and line[suite.metric_of(column)]:
            by_seed.setdefault(int(line["seed"]), {})[fold] = line
    return [[found[fold] for fold in folds] for _, found in sorted(by_seed.items()) if len(found) == len(folds)]


def _belongs(column: Column, row: SuiteRow, tier: str) -> bool:
    """Whether a row has a cell in a column; of a column that is not run in a tier only what it skips is left out."""
    place = column.places.get(tier)
    chosen = place is None or not place.rows or row.key in place.rows or row.method is None
    return column.key not in row.skip and chosen


def _interval(
    suite: Suite, column: Column, row: SuiteRow, tier: str, rows: Iterable[dict[str, str]]
) -> tuple[float, float] | None:
    """In per cent, of a worst group that is pooled over folds; further seeds test the same samples again."""
    if tier not in column.places or not column.places[tier].folds or suite.metric_of(column) != WORST:
        return None
    counts = [worst_group(lines) for lines in _ledger_lines(suite, column, row, tier, rows)]
    if not counts:
        return None
    low, high = wilson(statistics.mean(right / total for right, total in counts), min(total for _, total in counts))
    return 100 * low, 100 * high


def tier_shown(suite: Suite, column: Column, rows: Sequence[dict[str, str]]) -> str | None:
    """The best tier in which anything of a column was run."""
    for tier in SHOWN_TIERS:
        if any(measured_points(suite, column, row, tier, rows) for row in suite.rows):
            return tier
    return None


def _long_lines(suite: Suite, column: Column, rows: Sequence[dict[str, str]]) -> list[Line]:
    """Lines of tier `long` that have figures: of the others the column's usual table says more."""
    lines = column_lines(suite, column, LONG, rows) if LONG in column.places else []
    return [line for line in lines if line.values]


def column_text(suite: Suite, column: Column, tier: str, lines: Sequence[Line]) -> str:
    """The paper's figures beside ours, with what they say to each other."""
    body = [
        [
            line.row.title,
            "" if line.paper is None else f"{line.paper:.2f}",
            spread([_shown(suite, value) or 0.0 for value in line.values], digits=1) + _interval_text(line.interval),
            line.verdict.text(),
        ]
        for line in lines
    ]
    return f"{_heading(suite, column, tier)}\n\n{markdown(TITLES, body)}"


def _interval_text(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"


def tried_text(suite: Suite, column: Column, lines: Sequence[Line]) -> str:
    """What smoke runs came to."""
    run = [line for line in lines if line.values]
    config = cell_config(suite, "smoke", column, (run or lines)[0].row)
    metric = suite.metric_of(column).replace("_", " ")
    run_on = f"{config.task}, {config.model or 'its own network'}, {length_text(config)}"
    body = [[line.row.title, spread([_shown(suite, value) or 0.0 for value in line.values], digits=1)] for line in run]
    table = markdown(["method", metric], body)
    return f"smoke runs: {run_on}; {metric} in per cent, no measurement\n\n{table}"


def _heading(suite: Suite, column: Column, tier: str) -> str:
    row = next(row for row in suite.rows if row.method is not None)
    config = cell_config(suite, tier, column, row)
    shown = f"{suite.shows}, %" if column.metric is None else "%"  # a column with its own metric is named after it
    folds = column.places[tier].folds
    pooled = f" to `{folds}`, pooled, worst group with its 95 % interval" if folds else ""
    return (
        f"**{column.title}** ({shown}; tier `{tier}`, `{config.task}`{pooled}, {config.model}, {length_text(config)})"
    )


def length_text(config: TrainConfig) -> str:
    """Epochs, and in which precision where that is not the usual one.

    >>> length_text(TrainConfig(epochs=30, precision="bf16"))
    '30 epochs in bf16'
    """
    return f"{config.epochs} epochs" + ("" if config.precision == "no" else f" in {config.precision}")


def _absent_text(suite: Suite, columns: Sequence[Column]) -> list[str]:
    """The paper's figures of columns of which nothing was run: one table for each reason."""
    reasons = dict.fromkeys(column.absent for column in columns)
    return [_cited(suite, [column for column in columns if column.absent == reason], reason) for reason in reasons]


def _cited(suite: Suite, columns: Sequence[Column], reason: str | None) -> str:
    """Columns that could have been run have a line for each row; of the others only what the paper prints is cited."""
    heading = "Not run here" if reason is None else f"Cited, not run: {reason}"
    rows = [row for row in suite.rows if any(column.key not in row.skip for column in columns)]
    figures = {row.key: [_shown(suite, suite.paper_points(row, column)) for column in columns] for row in rows}
    shown = [row for row in rows if reason is None or any(value is not None for value in figures[row.key])]
    if not shown:
        return f"**{', '.join(column.title for column in columns)}**: not run, {reason}"
    body = [[row.title, *("" if value is None else f"{value:.2f}" for value in figures[row.key])] for row in shown]
    titles = ["method", *(f"the paper: {column.title}" for column in columns)]
    return f"**{heading}** ({suite.shows}, %)\n\n{markdown(titles, body)}"


def _notes(suite: Suite) -> list[str]:
    return ["\n".join(f"* {note}" for note in suite.notes)] if suite.notes else []


def _shown(suite: Suite, points: float | None) -> float | None:
    return 100 - points if points is not None and suite.shows == "error" else points


def _identity(config: TrainConfig) -> tuple[str, ...]:
    run = (config.task, config.model or "", config.method, options_text(config.options), str(config.epochs))
    return (*run, config.precision, config.selection, config.attributes)


def _ledger_identity(line: dict[str, str]) -> tuple[str, ...]:
    names = ("task", "model", "method", "options", "epochs", "precision", "selection", "attributes")
    return tuple(line[name] for name in names)


# Folds test every sample once: groups are pooled, and a small one has its interval.


def pooled(lines: Sequence[Mapping[str, str]], metric: str) -> float:
    """A figure of ledger rows, one for each fold: the worst group of all samples together, of other metrics the mean.

    >>> pooled([{"groups": "1/2 9/9"}, {"groups": "1/2 5/9"}], WORST)
    0.5
    """
    if metric != WORST or len(lines) == 1:
        return statistics.mean(float(line[metric]) for line in lines)
    right, total = worst_group(lines)
    return right / total


def worst_group(lines: Sequence[Mapping[str, str]]) -> tuple[int, int]:
    """Right and all samples of the group that is worst over the folds together."""
    folds = [[tuple(map(int, group.split("/"))) for group in line["groups"].split()] for line in lines]
    groups = [
        (sum(right for right, _ in group), sum(total for _, total in group)) for group in zip(*folds, strict=True)
    ]
    return min((group for group in groups if group[1]), key=lambda group: group[0] / group[1])


def wilson(share: float, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of `total` samples (Wilson, 1927).

    >>> [round(end, 3) for end in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    square = NORMAL**2 / total
    middle = (share + square / 2) / (1 + square)
    half = NORMAL / (1 + square) * math.sqrt(share * (1 - share) / total + square / (4 * total))
    return max(0.0, middle - half), min(1.0, middle + half)
