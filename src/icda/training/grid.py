"""Tasks x methods x seeds with one recipe, each cell a run of its own that is not run twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from icda.results import RunResult
from icda.training import TrainConfig, train
from icda.training.processes import process_pool


def run_grid(
    recipe: TrainConfig,
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    console: Console,
    fresh: bool = False,
    jobs: int = 1,
) -> list[RunResult]:
    """Results of all cells; `recipe.out` says where each goes. Finished cells are read, unless `fresh`.

    With several `jobs` each cell is trained by a process of its own on one thread.
    """
    cells = [
        replace(recipe, task=task, method=method, seed=seed)
        for task in tasks
        for method in methods
        for seed in range(seeds)
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results: dict[int, RunResult] = {}
    with Progress(*columns, console=console) as progress:
        line = progress.add_task("starting", total=len(cells))
        for number, result in _train_all(cells, fresh, jobs):
            results[number] = result
            cell = cells[number]
            progress.update(line, advance=1, description=f"{cell.task}, {cell.method}, seed {cell.seed}")
    return [results[number] for number in range(len(cells))]


def _train_all(cells: list[TrainConfig], fresh: bool, jobs: int) -> Iterator[tuple[int, RunResult]]:
    """Numbers and results of cells, in the order in which they finish."""
    if jobs <= 1:
        for number, cell in enumerate(cells):
            yield number, train(cell, resume=not fresh, overwrite=fresh)
        return
    with process_pool(jobs) as pool:
        waiting = {pool.submit(_train_cell, cell, fresh): number for number, cell in enumerate(cells)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _train_cell(cell: TrainConfig, fresh: bool) -> RunResult:
    return train(cell, resume=not fresh, overwrite=fresh)
