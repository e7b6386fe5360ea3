"""Runs the cells of a suite, here or on a Ray cluster, keeps the ledger, and says how long it will take."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from icda.data import create_task
from icda.engines import Where
from icda.errors import InputError
from icda.methods import check_needs, method_needs, resolve_method
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.results import RunResult
from icda.results.files import RESULT
from icda.results.ledger import to_row
from icda.settings import check_names
from icda.training.config import finished_result
from icda.training.grid import run_cells, shown
from icda.training.run import visible_task
from icda_bench.ledger import add_to_ledger
from icda_bench.suites.suite import Cell


def run_suite(
    cells: Sequence[Cell],
    console: Console,
    *,
    where: Where = "local",
    jobs: int = 1,
    ledger: Path | None = None,
) -> tuple[dict[int, RunResult], dict[int, str]]:
    """Results of cells by their numbers, and why others failed, which stops no other cell.

    Finished cells are not run again; each goes into the ledger as soon as it is finished. Workers of Ray write to `out` as
    they see it. Where that is no shared disk, results are written here too, so that a finished cell is known as such; only
    a cell that was cut short starts again.
    """
    check_cells(cells)
    configs = [cell.config for cell in cells]
    results: dict[int, RunResult] = {}
    failures: dict[int, str] = {}
    for number, outcome in shown(run_cells(configs, jobs, where=where), [cell.label() for cell in cells], console):
        if outcome.result is None:
            failures[number] = outcome.failure
            continue
        results[number] = outcome.result
        if where == "ray" and finished_result(configs[number]) is None:  # its worker writes to another disk
            configs[number].folder().mkdir(parents=True, exist_ok=True)
            outcome.result.write(configs[number].folder() / RESULT)
        if ledger is not None:
            add_to_ledger(ledger, to_row(outcome.result, cells[number].tier))
    for number, reason in sorted(failures.items()):
        console.print(f"failed: {cells[number].label()}: {reason}", highlight=False, markup=False)
    return results, failures


def check_cells(cells: Sequence[Cell]) -> None:
    """Refuse what no cell could run with, before any is: unknown names and options, missing data, missing needs."""
    if not cells:
        raise InputError("nothing to run: the chosen methods and tasks have no cell in common.")
    for cell in cells:
        method = cell.config.method
        check_names(cell.config.options, option_names(method_class(method)), f"method {method!r}", "option")
    for model in {cell.config.model for cell in cells if cell.config.model and ":" not in cell.config.model}:
        MODELS.get(model)
    tasks = {place: create_task(*place) for place in sorted({_place(cell) for cell in cells}, key=str)}
    for cell in cells:
        task = tasks[_place(cell)]
        check_needs(
            resolve_method(cell.config.method), method_needs(cell.config.method), visible_task(cell.config, task)
        )


def _place(cell: Cell) -> tuple[str, str | None, int, float | None]:
    return cell.config.task, cell.config.root, cell.config.data_seed, cell.config.subset
