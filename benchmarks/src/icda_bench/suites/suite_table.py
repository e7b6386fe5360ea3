"""A suite and its ledger as Markdown: the paper's figure, ours, and what they say to each other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from icda.training import TrainConfig
from icda_bench.ledger import CELL, cell_columns, read_ledger
from icda_bench.markdown import markdown
from icda_bench.suites.suite import Column, Suite, SuiteRow, cell_config
from icda_bench.suites.verdict import Line, PaperVerdict, judge

SHOWN_TIERS = ("paper", "cpu")  # in this order of preference; smoke runs are no measurement
LONG = "long"  # shown beside the tier above, with the rows that were run
WORST = "worst_group_accuracy"
TITLES = ["method", "the paper", "ours, mean ± std (n)", "status"]


@dataclass(frozen=True)
class ColumnRuns:
    """A column of a suite in one tier, with the ledger it is read from."""

    suite: Suite
    column: Column
    tier: str
    ledger: Sequence[Mapping[str, str]]

    def lines(self) -> list[Line]:
        """The rows of the column with what was measured, and what that says of the paper's figures."""
        suite = self.suite
        lines = [
            Line(row, suite.paper_points(row, self.column), self.points(row), self._interval(row)) for row in suite.rows
        ]
        judged = judge(lines, suite.reference, at_paper_tier=self.tier == "paper")
        cited = PaperVerdict("cited")
        return [
            replace(line, verdict=cited) if line.row.method is None else line
            for line in judged
            if self.column.has(line.row, self.tier)
        ]

    def points(self, row: SuiteRow) -> tuple[float, ...]:
        """The suite's metric in per cent of all runs of a row, by seed."""
        return tuple(100 * pooled(lines, self.suite.metric_of(self.column)) for lines in self._runs(row))

    @property
    def was_run(self) -> bool:
        return any(self.points(row) for row in self.suite.rows)

    def text(self, lines: Sequence[Line]) -> str:
        """The paper's figures beside ours, with what they say to each other."""
        body = [
            [
                line.row.title,
                "" if line.paper is None else f"{self.suite.printed(line.paper):.2f}",
                self.suite.spread(line.values) + _interval_text(line.interval),
                line.verdict.text(),
            ]
            for line in lines
        ]
        return f"{self._heading()}\n\n{markdown(TITLES, body)}"

    def tried_text(self) -> str:
        """What smoke runs came to."""
        lines = self.lines()
        run = [line for line in lines if line.values]
        config = cell_config(self.suite, "smoke", self.column, (run or lines)[0].row)
        metric = self.suite.metric_of(self.column).replace("_", " ")
        run_on = f"{config.task}, {config.model or 'its own network'}, {length_text(config)}"
        table = markdown(["method", metric], [[line.row.title, self.suite.spread(line.values)] for line in run])
        return f"smoke runs: {run_on}; {metric} in per cent, no measurement\n\n{table}"

    def _heading(self) -> str:
        column, row = self.column, next(row for row in self.suite.rows if row.method is not None)
        config = cell_config(self.suite, self.tier, column, row)
        shown = f"{self.suite.shows}, %" if column.metric is None else "%"  # a column's own metric stands in its title
        folds = column.places[self.tier].folds
        pooled = f" to `{folds}`, pooled, worst group with its 95 % interval" if folds else ""
        run_on = f"tier `{self.tier}`, `{config.task}`{pooled}, {config.model}, {length_text(config)}"
        return f"**{column.title}** ({shown}; {run_on})"

    def _runs(self, row: SuiteRow) -> list[list[Mapping[str, str]]]:
        """The ledger's lines of a row by seed, one for each fold; a seed that lacks a fold is left out."""
        if row.method is None or self.tier not in self.column.places or not self.column.has(row, self.tier):
            return []
        folds = self.column.places[self.tier].fold_numbers()
        configs = {fold: cell_config(self.suite, self.tier, self.column, row, fold=fold) for fold in folds}
        cells = {tuple(cell_columns(config).values()): fold for fold, config in configs.items()}
        by_seed: dict[int, dict[int, Mapping[str, str]]] = {}
        for line in self.ledger:
            fold = cells.get(tuple(line[name] for name in CELL))
            if line["tier"] == self.tier and fold is not None and line[self.suite.metric_of(self.column)]:
                by_seed.setdefault(int(line["seed"]), {})[fold] = line
        return [[found[fold] for fold in folds] for _, found in sorted(by_seed.items()) if len(found) == len(folds)]

    def _interval(self, row: SuiteRow) -> tuple[float, float] | None:
        """In per cent, of a worst group that is pooled over folds; further seeds test the same samples again."""
        place = self.column.places.get(self.tier)
        if place is None or not place.folds or self.suite.metric_of(self.column) != WORST:
            return None
        counts = [worst_group(lines) for lines in self._runs(row)]
        if not counts:
            return None
        from icda.report.formatting import wilson  # which imports torch

        share, total = statistics.mean(right / total for right, total in counts), min(total for _, total in counts)
        interval = wilson(share * total, total)
        return interval and (100 * interval[0], 100 * interval[1])


def suite_rows(suite: str, results: Path) -> list[dict[str, str]]:
    """The ledger of a suite; none if nothing was run yet."""
    path = results / f"{suite}.csv"
    return read_ledger(path) if path.exists() else []


def suite_table(suite: Suite, ledger: Sequence[Mapping[str, str]]) -> str:
    """One table per column and tier that was run, with a line above it that says on what; the other columns share one."""
    shown = shown_columns(suite, ledger)
    parts = [runs.text(lines) for runs, lines in shown]
    was_run = {runs.column.key for runs, _ in shown}
    absent = [column for column in suite.columns if column.key not in was_run]
    notes = ["\n".join(f"* {note}" for note in suite.notes)] if suite.notes else []
    return "\n\n".join([*parts, *_absent_text(suite, absent), *notes])


def overview_table(suite: Suite, ledger: Sequence[Mapping[str, str]], ending: str = "") -> str:
    """Ours alone, a line per method and a column per table; with `ending`, only of columns whose title ends with it."""
    shown = [part for part in shown_columns(suite, ledger) if part[0].column.title.endswith(ending)]
    titles = [
        runs.column.title.removesuffix(ending) + (", tier `long`" if runs.tier == LONG else "") for runs, _ in shown
    ]
    figures = [{line.row.key: suite.spread(line.values) for line in lines} for _, lines in shown]
    body = [[row.title, *(column.get(row.key, "") for column in figures)] for row in suite.rows]
    return markdown(["method", *titles], [line for line in body if any(line[1:])])


def shown_columns(suite: Suite, ledger: Sequence[Mapping[str, str]]) -> list[tuple[ColumnRuns, list[Line]]]:
    """The columns that were run with the lines to show: of tier `long`, of the best other tier, or of both.

    Of tier `long` lines without figures are left out: the column's usual table says more.
    """
    shown = []
    for column in suite.columns:
        long = ColumnRuns(suite, column, LONG, ledger)
        if long.was_run:
            shown.append((long, [line for line in long.lines() if line.values]))
        if (usual := best_tier(suite, column, ledger)) is not None:
            shown.append((usual, usual.lines()))
    return shown


def best_tier(suite: Suite, column: Column, ledger: Sequence[Mapping[str, str]]) -> ColumnRuns | None:
    """A column in the best tier in which anything of it was run."""
    every = (ColumnRuns(suite, column, tier, ledger) for tier in SHOWN_TIERS)
    return next((runs for runs in every if runs.was_run), None)


def _interval_text(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"


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
    figures = {row.key: [suite.paper_points(row, column) for column in columns] for row in rows}
    shown = [row for row in rows if reason is None or any(value is not None for value in figures[row.key])]
    if not shown:
        return f"**{', '.join(column.title for column in columns)}**: not run, {reason}"
    body = [
        [row.title, *("" if value is None else f"{suite.printed(value):.2f}" for value in figures[row.key])]
        for row in shown
    ]
    titles = ["method", *(f"the paper: {column.title}" for column in columns)]
    return f"**{heading}** ({suite.shows}, %)\n\n{markdown(titles, body)}"


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
