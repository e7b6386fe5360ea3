"""Tasks x methods x seeds with one recipe, each cell a run of its own that is not run twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from icda.training import TrainConfig, train


def run_grid(
    recipe: TrainConfig,
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    console: Console,
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """Results of all cells; `recipe.out` says where each goes. Finished cells are read, unless `fresh`."""
    cells = [(task, method, seed) for task in tasks for method in methods for seed in range(seeds)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results = []
    with Progress(*columns, console=console) as progress:
        line = progress.add_task("starting", total=len(cells))
        for task, method, seed in cells:
            progress.update(line, description=f"{task}, {method}, seed {seed}")
            config = replace(recipe, task=task, method=method, seed=seed)
            results.append(train(config, resume=not fresh, overwrite=fresh))
            progress.advance(line)
    return results
