"""Cells as tasks on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from icda.engines import start_ray
from icda.extras import require
from icda.results.files import RESULT
from icda.training import TrainConfig
from icda.training.config import finished_result
from icda.training.grid import ATTEMPTS, CellOutcome, run_cell


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
