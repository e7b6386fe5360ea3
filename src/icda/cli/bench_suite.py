"""`icda bench table2`, ...: the paper's tables"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from icda.bench.backends import Where
from icda.bench.cost.network_cost import add_to_csv, measure_network_cost
from icda.bench.ledger import to_row
from icda.bench.markdown import spread
from icda.bench.suites.runner import GridReport, describe_plan, run_suite
from icda.bench.suites.suite import Cell, Suite, TierName, cells, load_suite
from icda.bench.suites.suite_figure import FIGURES, draw_suite
from icda.bench.suites.suite_table import column_lines
from icda.errors import InputError
from icda.terminal import make_console


@dataclass
class SuiteArguments:
    """Run a table of the paper, resumably: finished cells are read, begun ones continued, failed ones reported."""

    tier: TierName = "cpu"
    """How much: smoke (embedded digits, seconds), cpu (two cores, under an hour), paper (the paper's recipe, a GPU)."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table, by method."""
    tasks: tuple[str, ...] = ()
    """Only these columns, by task or by the suite's own name for them; columns marked optional must be named."""
    seeds: int | None = None
    """Seeds of every row, instead of as many as the suite says."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Cells at the same time, each on one core; all cores by default."""
    on: Where = "local"
    """Where cells are trained: local, or ray (the cluster RAY_ADDRESS names, else a Ray on this machine)."""
    out: str = "runs/bench"
    """Folder for the cells' files; cells that tables share are run once."""
    ledger: Path | None = None
    """CSV file that gets a row as soon as a cell is finished (benchmarks/results/NAME.csv is ours)."""
    figure: Path | None = None
    """Draw what was run to this image (ablation and sensitivity)."""
    dry_run: bool = False
    """List the cells and which are done; run nothing."""


@dataclass
class CostArguments:
    """Measure training steps of seven networks, ICDA and cross entropy taking turns in one process."""

    tier: TierName = "cpu"
    """How much: smoke (one network, batch 4), cpu (batch 32), paper (batch 128, 100 steps)."""
    networks: tuple[str, ...] = ()
    """Only these networks."""
    ledger: Path | None = None
    """CSV file to put the figures into (benchmarks/results/table3.csv is ours)."""


def main(name: str, arguments: Sequence[str]) -> int:
    return _cost(arguments) if name == "table3" else _suite(name, arguments)


def _suite(name: str, arguments: Sequence[str]) -> int:
    options = tyro.cli(SuiteArguments, args=list(arguments), prog=f"icda bench {name}")
    _check_suite_arguments(name, options)
    console, suite = make_console(), load_suite(name)
    chosen = cells(suite, options.tier, options.out, methods=options.methods, tasks=options.tasks, seeds=options.seeds)
    if options.dry_run:
        describe_plan(chosen, console)
        return 0
    report = run_suite(chosen, console, where=options.on, jobs=options.jobs, ledger=options.ledger)
    _show(suite, chosen, report, options.tier, console)
    if options.figure is not None:
        draw_suite(suite, [to_row(result, options.tier) for result in report.results.values()], options.figure)
        console.print(f"Drawn to {options.figure}", highlight=False)
    return int(bool(report.failures))


def _check_suite_arguments(name: str, options: SuiteArguments) -> None:
    if options.seeds is not None and options.seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {options.seeds}.")
    if options.figure is not None and name not in FIGURES:
        raise InputError(f"{name} has no figure: --figure goes with {' and '.join(FIGURES)}.")
    if options.figure is not None and options.tier == "smoke":
        raise InputError("--figure draws tier cpu or paper: smoke runs are no measurement.")


def _show(suite: Suite, chosen: Sequence[Cell], report: GridReport, tier: str, console: Console) -> None:
    rows = [to_row(result, tier) for result in report.results.values()]
    run = {suite.column(cell.column).places[tier].task for cell in chosen}
    for column in suite.columns:
        if tier not in column.places or column.places[tier].task not in run:
            continue
        table = Table("method", "the paper", "ours", "status", title=column.title, title_justify="left")
        for line in column_lines(suite, column, tier, rows):
            paper = "" if line.paper is None else f"{line.paper:.2f}"
            values = [100 - value for value in line.values] if suite.shows == "error" else list(line.values)
            table.add_row(line.row.title, paper, spread(values, digits=1), line.verdict.text())
        console.print(table)


def _cost(arguments: Sequence[str]) -> int:
    options = tyro.cli(CostArguments, args=list(arguments), prog="icda bench table3")
    console = make_console()
    rows = measure_network_cost(options.tier, options.networks, console.print)
    table = Table("network", "C", "CE ms", "ICDA ms", "extra", title="what ICDA adds to a training step")
    for row in rows:
        extra = f"{row.extra:+.1f} ± {row.noise:.1f} %"
        table.add_row(row.network, str(row.classes), str(row.base_ms), str(row.method_ms), extra)
    console.print(table)
    if options.ledger is not None:
        add_to_csv(rows, options.ledger)
        console.print(f"Written to {options.ledger}", highlight=False)
    return 0
