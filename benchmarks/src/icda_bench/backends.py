"""Where cells are trained: in this process, in several beside it, or on a Ray cluster."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from icda.engines import start_ray
from icda.extras import require
from icda.results import RunResult, write_atomically
from icda.results.claims import claimed
from icda.results.files import FAILURE, REPORT, RESULT
from icda.results.foreign_text import printable
from icda.training import TrainConfig, train
from icda.training.processes import process_pool
from icda_bench.finished import finished_result

Where = Literal["local", "ray"]
ATTEMPTS = 2  # a worker that dies takes its cell along: once may be bad luck


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: its result, or why there is none. `seconds` is 0 for one that was found finished."""

    result: RunResult | None
    failure: str = ""
    seconds: float = 0.0


class Numbered(NamedTuple):
    number: int
    outcome: Outcome


def run_cells(configs: Sequence[TrainConfig], where: Where, jobs: int) -> Iterator[Numbered]:
    """The outcome of every cell with its number, in the order in which they finish; a failed cell stops no other."""
    if where == "ray":
        return _on_ray(configs, jobs)
    return _beside(configs, jobs) if jobs > 1 else _here(configs)


def run_cell(config: TrainConfig) -> Outcome:
    """Train one cell from where it stands: read if finished, resumed if begun. Another process on it is waited for."""
    folder = config.folder()
    with claimed(folder, say=_say):
        earlier = finished_result(config)
        if earlier is not None and (folder / REPORT).exists():
            return Outcome(earlier)
        started = time.perf_counter()
        try:
            result = train(config, resume=True)
        except Exception as error:  # whatever it is, it concerns this cell alone
            write_atomically(folder / FAILURE, traceback.format_exc().encode())
            return Outcome(None, f"{type(error).__name__}: {error} (all of it: {folder / FAILURE})")
        (folder / FAILURE).unlink(missing_ok=True)
        return Outcome(result, seconds=time.perf_counter() - started if earlier is None else 0.0)


def _say(sentence: str) -> None:
    print(printable(f"icda: {sentence}"), file=sys.stderr, flush=True)


def _here(configs: Sequence[TrainConfig]) -> Iterator[Numbered]:
    for number, config in enumerate(configs):
        yield Numbered(number, run_cell(config))


def _beside(
    configs: Sequence[TrainConfig], jobs: int, work: Callable[[TrainConfig], Outcome] = run_cell
) -> Iterator[Numbered]:
    """Several processes; a cell whose process died is tried again in a new pool."""
    open_cells, attempts = list(range(len(configs))), Counter[int]()
    while open_cells:
        closed = set()
        for number, outcome in _one_pool(configs, open_cells, jobs, work):
            if outcome is None:
                attempts[number] += 1
                if attempts[number] < ATTEMPTS:
                    continue
                outcome = Outcome(None, "its process died (killed, or out of memory)")
            closed.add(number)
            yield Numbered(number, outcome)
        open_cells = [number for number in open_cells if number not in closed]


def _one_pool(
    configs: Sequence[TrainConfig], numbers: list[int], jobs: int, work: Callable[[TrainConfig], Outcome]
) -> Iterator[tuple[int, Outcome | None]]:
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


def _on_ray(configs: Sequence[TrainConfig], jobs: int) -> Iterator[Numbered]:
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
            yield Numbered(number, _collect(ray, done, configs[number]))
    finally:
        if own:
            ray.shutdown()


def _run_alone(config: TrainConfig) -> Outcome:
    torch.set_num_threads(1)
    return run_cell(config)


def _collect(ray: Any, done: Any, config: TrainConfig) -> Outcome:
    try:
        outcome: Outcome = ray.get(done)
    except ray.exceptions.RayError as error:
        return Outcome(None, f"its Ray worker died ({type(error).__name__})")
    if outcome.result is not None and finished_result(config) is None:
        config.folder().mkdir(parents=True, exist_ok=True)
        outcome.result.write(config.folder() / RESULT)
    return outcome
