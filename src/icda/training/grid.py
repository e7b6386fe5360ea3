"""Runs of one recipe, each in a folder of its own: read if finished, continued if begun, several at the same time."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from icda.engines import process_pool
from icda.errors import OperationError
from icda.results import RunResult, write_atomically
from icda.results.claims import claimed
from icda.results.files import FAILURE, REPORT
from icda.results.foreign_text import printable
from icda.training import TrainConfig, train
from icda.training.config import finished_result

ATTEMPTS = 2  # a worker that dies takes its cell along: once may be bad luck


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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results: dict[int, RunResult] = {}
    with Progress(*columns, console=console) as progress:
        line = progress.add_task("starting", total=len(cells))
        for number, outcome in run_cells(cells, jobs, fresh):
            cell = cells[number]
            name = f"{cell.task}, {cell.method}, seed {cell.seed}"
            if outcome.result is None:
                raise OperationError(f"{name}: {outcome.failure}")
            results[number] = outcome.result
            progress.update(line, advance=1, description=name)
    return [results[number] for number in range(len(cells))]


def run_cells(configs: Sequence[TrainConfig], jobs: int, fresh: bool = False) -> Iterator[tuple[int, CellOutcome]]:
    """The number and outcome of every cell, in the order in which they finish; a failed cell stops no other.

    With several `jobs` each cell is trained by a process of its own on one thread.
    """
    work = partial(run_cell, fresh=fresh)
    if jobs > 1:
        yield from run_in_processes(configs, jobs, work)
    else:
        yield from enumerate(map(work, configs))


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


def run_in_processes(
    configs: Sequence[TrainConfig], jobs: int, work: Callable[[TrainConfig], CellOutcome]
) -> Iterator[tuple[int, CellOutcome]]:
    """Several processes; a cell whose process died is tried again in a new pool."""
    open_cells, attempts = list(range(len(configs))), Counter[int]()
    while open_cells:
        closed = set()
        for number, outcome in _one_pool(configs, open_cells, jobs, work):
            if outcome is None:
                attempts[number] += 1
                if attempts[number] < ATTEMPTS:
                    continue
                outcome = CellOutcome(None, "its process died (killed, or out of memory)")
            closed.add(number)
            yield number, outcome
        open_cells = [number for number in open_cells if number not in closed]


def _one_pool(
    configs: Sequence[TrainConfig], numbers: list[int], jobs: int, work: Callable[[TrainConfig], CellOutcome]
) -> Iterator[tuple[int, CellOutcome | None]]:
    """Outcomes until all are there or a process dies; None for the cells that were being trained then."""
    waiting = list(numbers)
    with process_pool(jobs) as pool:
        futures = {pool.submit(work, configs[number]): number for number in numbers}
        try:
            for future in as_completed(futures):
                outcome = future.result()
                waiting.remove(futures[future])
                yield futures[future], outcome
        except BrokenProcessPool:
            # A broken pool does not say whose process died: the oldest open cells were those in work.
            for number in waiting[:jobs]:
                yield number, None
