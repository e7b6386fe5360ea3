"""`icda bench table2`, ...: the paper's tables"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from icda.errors import InputError
from icda.results import RunResult
from icda.results.ledger import add_to_ledger, to_row
from icda.terminal import make_console
from icda_bench.finished import all_finished
from icda_bench.markdown import spread
from icda_bench.options import all_cores
from icda_bench.suites.plan import in_ledger, ledgers_beside, plan_lines
from icda_bench.suites.suite import Cell, Column, Suite, TierName, cell_config, cells, load_suite
from icda_bench.suites.suite_figure import FIGURES, draw_suite
from icda_bench.suites.suite_table import column_lines


@dataclass
class Arguments:
    """Run a table of the paper, resumably: finished cells are read, begun ones continued, failed ones reported."""

    tier: TierName = "cpu"
    """How much: smoke (embedded digits, seconds), cpu (two cores, under an hour), long (tables 2 and 9 with larger
    images and networks, a quarter of an hour or more per cell), paper (the paper's recipe, a GPU)."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table, by method."""
    tasks: tuple[str, ...] = ()
    """Only these columns, by task or by the suite's own name for them."""
    seeds: int | None = None
    """Seeds of every row, instead of as many as the suite says."""
    first_seed: int = 0
    """The first of them; seeds on which no setting was chosen begin later (digits of `noise`: 10)."""
    jobs: int = field(default_factory=all_cores)
    """Cells at the same time, each on one core; all cores by default."""
    on: Literal["local", "ray"] = "local"
    """Where cells are trained: local, or ray (the cluster RAY_ADDRESS names, else a Ray on this machine)."""
    out: str = "runs/bench"
    """Folder for the cells' files; cells that tables share are run once."""
    ledger: Path | None = None
    """CSV file that gets a row as soon as a cell is finished (benchmarks/results/NAME.csv is ours)."""
    figure: Path | None = None
    """Draw what was run to this image (ablation and sensitivity)."""
    missing: bool = False
    """Run only cells that neither --ledger nor another table's ledger beside it has; the others are shown from there."""
    dry_run: bool = False
    """List the cells, which are done and what the others will cost; run nothing."""


def run(name: str, options: Arguments) -> int:
    _check(name, options)
    console, suite = make_console(), load_suite(name)
    chosen = cells(
        suite,
        options.tier,
        options.out,
        methods=options.methods,
        tasks=options.tasks,
        seeds=options.seeds,
        first_seed=options.first_seed,
    )
    earlier = [] if options.ledger is None else ledgers_beside(options.ledger)
    known = in_ledger(chosen, earlier) if options.missing else {}
    plan = plan_lines(suite, chosen, earlier, known)
    for line in plan if options.dry_run else plan[-1:]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if options.dry_run:
        return 0
    if options.ledger is not None:
        for row in known.values():
            add_to_ledger(options.ledger, row)  # it may have stood in another table's
    lacking = [cell for number, cell in enumerate(chosen) if number not in known]
    results, failed = ([], False) if known and not lacking else _results(lacking, options, console)
    rows = [*map(dict, known.values()), *(to_row(result, options.tier) for result in results)]
    _show(suite, chosen, rows, options.tier, console)
    if options.figure is not None:
        draw_suite(suite, rows, options.figure)
        console.print(f"Drawn to {options.figure}", highlight=False)
    return int(failed)


def _results(chosen: Sequence[Cell], options: Arguments, console: Console) -> tuple[list[RunResult], bool]:
    """Results of the cells that have one, and whether any failed. Where all are finished nothing but them is read."""
    finished = all_finished([cell.config for cell in chosen])
    if finished:
        if options.ledger is not None:
            for result in finished:
                add_to_ledger(options.ledger, to_row(result, options.tier))
        return finished, False
    from icda_bench.suites.runner import run_suite  # torch, tasks and methods: seconds

    report = run_suite(chosen, console, where=options.on, jobs=options.jobs, ledger=options.ledger)
    return list(report.results.values()), bool(report.failures)


def _check(name: str, options: Arguments) -> None:
    if options.seeds is not None and options.seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {options.seeds}.")
    if options.missing and options.ledger is None:
        raise InputError("--missing needs --ledger FILE: the ledger says which cells there are already.")
    if options.first_seed < 0:
        raise InputError(f"--first-seed must not be negative, got {options.first_seed}.")
    if options.figure is not None and name not in FIGURES:
        raise InputError(f"{name} has no figure: --figure goes with {' and '.join(FIGURES)}.")
    if options.figure is not None and options.tier == "smoke":
        raise InputError("--figure draws tier cpu or paper: smoke runs are no measurement.")


def _show(suite: Suite, chosen: Sequence[Cell], rows: list[dict[str, str]], tier: str, console: Console) -> None:
    run = {suite.column(cell.column).places[tier].task for cell in chosen}
    shown = set()
    for column in suite.columns:
        if tier not in column.places or column.places[tier].task not in run:
            continue
        if tier != "smoke":
            console.print(_compared(suite, column, tier, rows))
        elif (heading := _what_was_run(suite, column, chosen)) not in shown:
            shown.add(heading)
            console.print(heading, highlight=False, markup=False)
            console.print(_tried(suite, column, rows))


def _compared(suite: Suite, column: Column, tier: str, rows: list[dict[str, str]]) -> Table:
    """The paper's figures beside ours, with what they say to each other."""
    table = Table("method", "the paper", "ours", "status", title=column.title, title_justify="left")
    for line in column_lines(suite, column, tier, rows):
        paper = "" if line.paper is None else f"{line.paper:.2f}"
        table.add_row(line.row.title, paper, _spread(suite, line.values), line.verdict.text())
    return table


def _tried(suite: Suite, column: Column, rows: list[dict[str, str]]) -> Table:
    """Smoke runs show that every method runs: they measure nothing the paper has, so nothing of it stands beside them."""
    table = Table("method", suite.metric_of(column).replace("_", " "))
    for line in column_lines(suite, column, "smoke", rows):
        if line.values:
            table.add_row(line.row.title, _spread(suite, line.values))
    return table


def _what_was_run(suite: Suite, column: Column, chosen: Sequence[Cell]) -> str:
    task = column.places["smoke"].task
    row = next(suite.row(cell.row) for cell in chosen if cell.column == column.key or cell.config.task == task)
    config = cell_config(suite, "smoke", column, row)
    model, epochs = config.model or "the task's own model", f"{config.epochs} epoch{'s' if config.epochs > 1 else ''}"
    return f"smoke runs: {task}, {model}, {epochs}; {suite.metric_of(column).replace('_', ' ')} in per cent, no measurement"


def _spread(suite: Suite, values: Sequence[float]) -> str:
    return spread([100 - value for value in values] if suite.shows == "error" else list(values), digits=1)
