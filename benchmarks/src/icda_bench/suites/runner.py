"""Runs the cells of a suite, here or on a Ray cluster, keeps the ledger, and says how long it will take."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from icda.data import create_task
from icda.engines import start_ray
from icda.errors import InputError
from icda.extras import require
from icda.methods import check_needs, method_needs, resolve_method
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.registry import UnknownNameError, did_you_mean
from icda.results import RunResult
from icda.results.files import RESULT
from icda.results.ledger import to_row
from icda.training import TrainConfig
from icda.training.config import finished_result
from icda.training.grid import ATTEMPTS, CellOutcome, run_cell, run_cells
from icda.training.run import visible_task
from icda_bench.ledger import add_to_ledger
from icda_bench.suites.suite import Cell


def run_suite(
    cells: Sequence[Cell],
    console: Console,
    *,
    where: Literal["local", "ray"] = "local",
    jobs: int = 1,
    ledger: Path | None = None,
) -> tuple[dict[int, RunResult], dict[int, str]]:
    """Results of cells by their numbers, and why others failed, which stops no other cell.

    Finished cells are not run again; each goes into the ledger as soon as it is finished.
    """
    check_cells(cells)
    run = run_on_ray if where == "ray" else run_cells
    results: dict[int, RunResult] = {}
    failures: dict[int, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        line = progress.add_task("starting", total=len(cells))
        for number, outcome in run([cell.config for cell in cells], jobs):
            if outcome.result is None:
                failures[number] = outcome.failure
            else:
                results[number] = outcome.result
                if ledger is not None:
                    add_to_ledger(ledger, to_row(outcome.result, cells[number].tier))
            progress.update(line, advance=1, description=cells[number].label())
    for number, reason in sorted(failures.items()):
        console.print(f"failed: {cells[number].label()}: {reason}", highlight=False, markup=False)
    return results, failures


def check_cells(cells: Sequence[Cell]) -> None:
    """Refuse what no cell could run with, before any is: unknown names and options, missing data, missing needs."""
    if not cells:
        raise InputError("nothing to run: the chosen methods and tasks have no cell in common.")
    for cell in cells:
        known = option_names(method_class(cell.config.method))
        for option in (name for name in cell.config.options if name not in known):
            hint = did_you_mean(option, known)
            raise UnknownNameError(f"method {cell.config.method!r} has no option {option!r}: {hint}")
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


def run_on_ray(configs: Sequence[TrainConfig], jobs: int) -> Iterator[tuple[int, CellOutcome]]:
    """Cells as Ray tasks of one processor each, on the cluster RAY_ADDRESS names, else on a Ray of `jobs` processes here.

    Workers write to `out` as they see it. Where that is no shared disk, results are written here too, so that a finished
    cell is known as such; only a cell that was cut short starts again.
    """
    ray = require("ray", "ray", "cells on a cluster")
    own = not ray.is_initialized()
    if own:
        start_ray(ray, jobs)
    try:
        remote = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_run_alone)
        waiting = {remote.remote(config): number for number, config in enumerate(configs)}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            yield number, _collect(ray, done, configs[number])
    finally:
        if own:
            ray.shutdown()


def _run_alone(config: TrainConfig) -> CellOutcome:
    torch.set_num_threads(1)
    return run_cell(config)


def _collect(ray: Any, done: Any, config: TrainConfig) -> CellOutcome:
    try:
        outcome: CellOutcome = ray.get(done)
    except ray.exceptions.RayError as error:
        return CellOutcome(None, f"its Ray worker died ({type(error).__name__})")
    if outcome.result is not None and finished_result(config) is None:
        config.folder().mkdir(parents=True, exist_ok=True)
        outcome.result.write(config.folder() / RESULT)
    return outcome
