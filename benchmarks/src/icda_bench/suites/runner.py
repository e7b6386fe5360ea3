"""Runs the cells of a suite, keeps the ledger, and says how long it will take."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from icda.data import create_task
from icda.errors import InputError
from icda.methods import check_needs, method_needs, resolve_method
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.registry import UnknownNameError, did_you_mean
from icda.results import RunResult
from icda.results.ledger import add_to_ledger, to_row
from icda.training.run import told_task
from icda_bench.backends import Outcome, Where, run_cells
from icda_bench.suites.suite import Cell


@dataclass
class GridReport:
    """What came of a grid: results by cell number, and failed cells with their reason."""

    results: dict[int, RunResult] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)


def run_suite(
    cells: Sequence[Cell],
    console: Console,
    *,
    where: Where = "local",
    jobs: int = 1,
    ledger: Path | None = None,
) -> GridReport:
    """Run cells that are not finished; each goes into the ledger as soon as it is. A failure stops no other cell."""
    check_cells(cells)
    report, clock = GridReport(), Clock([cell.config.method for cell in cells], jobs)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=console) as progress:
        line = progress.add_task("starting", total=len(cells), left="")
        for number, outcome in run_cells([cell.config for cell in cells], where, jobs):
            _keep(report, number, cells[number], outcome, ledger)
            clock.finished(number, outcome.seconds)
            progress.update(line, advance=1, description=cells[number].label(), left=clock.left())
    for number, reason in sorted(report.failures.items()):
        console.print(f"failed: {cells[number].label()}: {reason}", highlight=False, markup=False)
    return report


def _keep(report: GridReport, number: int, cell: Cell, outcome: Outcome, ledger: Path | None) -> None:
    if outcome.result is None:
        report.failures[number] = outcome.failure
        return
    report.results[number] = outcome.result
    if ledger is not None:
        add_to_ledger(ledger, to_row(outcome.result, cell.tier))


class Clock:
    """How long the rest of a grid will take, by the mean time of finished cells of the same method.

    A method not seen yet takes the mean of all. Cells that were found finished say nothing about time.

    >>> clock = Clock(["ce", "icda", "ce"], jobs=1)
    >>> clock.finished(0, 60.0)
    >>> clock.left()
    'about 2 min left'
    """

    def __init__(self, methods: Sequence[str], jobs: int) -> None:
        self._open = dict(enumerate(methods))
        self._jobs = max(1, jobs)
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def finished(self, number: int, seconds: float) -> None:
        method = self._open.pop(number)
        if seconds > 0:
            self._seconds[method].append(seconds)

    def seconds_left(self) -> float | None:
        every = [value for values in self._seconds.values() for value in values]
        if not every:
            return None if self._open else 0.0
        overall = statistics.mean(every)
        means = {method: statistics.mean(values) for method, values in self._seconds.items() if values}
        return sum(means.get(method, overall) for method in self._open.values()) / self._jobs

    def left(self) -> str:
        seconds = self.seconds_left()
        if seconds is None:
            return ""
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def check_cells(cells: Sequence[Cell]) -> None:
    """Refuse what no cell could run with, before any is: unknown names and options, missing data, missing needs."""
    if not cells:
        raise InputError("nothing to run: the chosen methods and tasks have no cell in common.")
    for method, options in {(cell.config.method, tuple(cell.config.options)) for cell in cells}:
        _check_options(method, options)
    for model in {cell.config.model for cell in cells if cell.config.model and ":" not in cell.config.model}:
        MODELS.get(model)
    tasks = {place: create_task(*place) for place in sorted({_place(cell) for cell in cells}, key=str)}
    for cell in cells:
        task = tasks[_place(cell)]
        check_needs(resolve_method(cell.config.method), method_needs(cell.config.method), told_task(cell.config, task))


def _place(cell: Cell) -> tuple[str, str | None, int, float | None]:
    return cell.config.task, cell.config.root, cell.config.data_seed, cell.config.subset


def _check_options(method: str, options: Sequence[str]) -> None:
    known = option_names(method_class(method))
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise UnknownNameError(
                f"method {method!r} has no option {option!r}: {hint}Known: {', '.join(known) or 'none'}."
            )
