"""Runs of one recipe, each in a folder of its own: read if finished, continued if begun, several at the same time."""

import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from icda.engines import Where, WorkerDiedError, apart
from icda.errors import OperationError
from icda.results import RunResult, write_atomically
from icda.results.claims import claimed
from icda.results.files import FAILURE, REPORT
from icda.results.foreign_text import printable
from icda.training import TrainConfig, train
from icda.training.config import finished_result


@dataclass(frozen=True)
class CellOutcome:
    """What became of a cell: its result, or why there is none. `seconds` is 0 for one that was found finished."""

    result: RunResult | None
    failure: str = ""
    seconds: float = 0.0


def run_grid(
    recipe: TrainConfig,
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    console: Console,
    fresh: bool = False,
    jobs: int = 1,
) -> list[RunResult]:
    """Results of tasks x methods x seeds; `recipe.out` says where each goes. Finished cells are read, unless `fresh`."""
    cells = [
        replace(recipe, task=task, method=method, seed=seed)
        for task in tasks
        for method in methods
        for seed in range(seeds)
    ]
    names = [f"{cell.task}, {cell.method}, seed {cell.seed}" for cell in cells]
    results: dict[int, RunResult] = {}
    for number, outcome in shown(run_cells(cells, jobs, fresh), names, console):
        if outcome.result is None:
            raise OperationError(f"{names[number]}: {outcome.failure}")
        results[number] = outcome.result
    return [results[number] for number in range(len(cells))]


def shown(
    outcomes: Iterable[tuple[int, CellOutcome]], names: Sequence[str], console: Console
) -> Iterator[tuple[int, CellOutcome]]:
    """The outcomes of cells as they come, with a bar that has the name of the last and the time left."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        line = progress.add_task("starting", total=len(names))
        for number, outcome in outcomes:
            yield number, outcome
            progress.update(line, advance=1, description=names[number])


def run_cells(
    configs: Sequence[TrainConfig], jobs: int, fresh: bool = False, where: Where = "local"
) -> Iterator[tuple[int, CellOutcome]]:
    """The number and outcome of every cell, in the order in which they finish; a failed cell stops no other.

    With several `jobs`, and on Ray, each cell is trained by a process of its own on one thread.
    """
    for number, found in apart(partial(run_cell, fresh=fresh), configs, jobs, where):
        yield number, CellOutcome(None, str(found)) if isinstance(found, WorkerDiedError) else found


def run_cell(config: TrainConfig, fresh: bool = False) -> CellOutcome:
    """Train one cell from where it stands, or anew if `fresh`. Another process on it is waited for."""
    folder = config.folder()
    with claimed(folder, say=lambda words: print(printable(f"icda: {words}"), file=sys.stderr, flush=True)):
        earlier = None if fresh else finished_result(config)
        if earlier is not None and (folder / REPORT).exists():
            return CellOutcome(earlier)
        started = time.perf_counter()
        try:
            result = train(config, resume=not fresh, overwrite=fresh)
        except Exception as error:  # whatever it is, it concerns this cell alone
            write_atomically(folder / FAILURE, traceback.format_exc().encode())
            return CellOutcome(None, f"{type(error).__name__}: {error} (all of it: {folder / FAILURE})")
        (folder / FAILURE).unlink(missing_ok=True)
        return CellOutcome(result, seconds=time.perf_counter() - started if earlier is None else 0.0)
