"""`icda bench table2`, ...: the paper's tables"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from icda.engines import Where
from icda.errors import InputError
from icda.results import RunResult
from icda.results.files import REPORT
from icda.results.ledger import to_row
from icda.terminal import make_console
from icda.training import TrainConfig
from icda.training.config import finished_result
from icda_bench.ledger import add_to_ledger
from icda_bench.options import all_cores
from icda_bench.suites.plan import in_ledger, neighbouring_ledgers, plan_lines
from icda_bench.suites.suite import Cell, Suite, TierName, cells, load_suite
from icda_bench.suites.suite_figure import FIGURES, draw_suite
from icda_bench.suites.suite_table import ColumnRuns


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
    on: Where = "local"
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
    only = (options.methods, options.tasks, options.seeds, options.first_seed)
    chosen = cells(suite, options.tier, options.out, *only)
    earlier = [] if options.ledger is None else neighbouring_ledgers(options.ledger)
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
    finished = _all_finished([cell.config for cell in chosen])
    if finished:
        if options.ledger is not None:
            for result in finished:
                add_to_ledger(options.ledger, to_row(result, options.tier))
        return finished, False
    from icda_bench.suites.runner import run_suite  # torch, tasks and methods: seconds

    results, failures = run_suite(chosen, console, where=options.on, jobs=options.jobs, ledger=options.ledger)
    return list(results.values()), bool(failures)


def _all_finished(configs: Sequence[TrainConfig]) -> list[RunResult] | None:
    """The results of all cells; None if there is something left to do for one of them."""
    results: list[RunResult] = []
    for config in configs:
        result = finished_result(config) if (config.folder() / REPORT).exists() else None
        if result is None:
            return None
        results.append(result)
    return results


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
    """The columns that were run. Smoke runs measure nothing, so nothing of the paper stands beside them."""
    run = {suite.column(cell.column).places[tier].task for cell in chosen}
    texts = []
    for column in suite.columns:
        if tier in column.places and column.places[tier].task in run:
            runs = ColumnRuns(suite, column, tier, rows)
            texts.append(runs.tried_text() if tier == "smoke" else runs.text(runs.lines()))
    for text in dict.fromkeys(texts):  # columns may share their smoke runs
        console.print(text, highlight=False, markup=False, soft_wrap=True)
