"""A grid runs every cell once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from icda.training import TrainConfig, grid, run
from icda.training.grid import run_grid

QUIET = Console(quiet=True)
TASKS, METHODS = ("digits_lt", "digits"), ("cross_entropy", "icda")


@pytest.fixture
def recipe(tmp_path: Path) -> TrainConfig:
    return TrainConfig(model="linear", epochs=1, out=str(tmp_path / "{task}/{method}/seed{seed}"))


def test_cells_are_tasks_by_methods_by_seeds_with_the_rest_of_the_recipe_alike(
    recipe: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[TrainConfig, dict[str, Any]]] = []

    def pretend(config: TrainConfig, **settings: Any) -> dict[str, Any]:
        seen.append((config, settings))
        return {"cell": len(seen)}

    monkeypatch.setattr(grid, "train", pretend)
    results = run_grid(recipe, TASKS, METHODS, 2, QUIET)
    wanted = [(task, method, seed) for task in TASKS for method in METHODS for seed in range(2)]
    assert [(config.task, config.method, config.seed) for config, _ in seen] == wanted
    assert all((config.model, config.epochs) == ("linear", 1) for config, _ in seen)
    assert results == [{"cell": k + 1} for k in range(8)]
    assert all(settings == {"resume": True, "overwrite": False} for _, settings in seen)
    seen.clear()
    run_grid(recipe, TASKS, METHODS, 1, QUIET, fresh=True)
    assert all(settings == {"resume": False, "overwrite": True} for _, settings in seen)


def test_a_finished_cell_is_read_and_not_run_again(recipe: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []

    class Watched(run.Trainer):
        def run(self, resume: bool = False) -> None:
            trained.append(self.config.method)
            super().run(resume)

    monkeypatch.setattr(run, "Trainer", Watched)
    first = run_grid(recipe, TASKS[:1], METHODS[:1], 1, QUIET)
    assert trained == ["cross_entropy"]
    grown = run_grid(recipe, TASKS[:1], METHODS, 1, QUIET)
    assert trained == ["cross_entropy", "icda"]
    assert grown[0] == json.loads(json.dumps(first[0]))
    run_grid(recipe, TASKS[:1], METHODS[:1], 1, QUIET, fresh=True)
    assert trained == ["cross_entropy", "icda", "cross_entropy"]


def test_cells_trained_at_the_same_time_give_the_results_of_one_after_the_other(tmp_path: Path) -> None:
    results = []
    for jobs in (1, 2):
        recipe = TrainConfig(epochs=1, out=f"{tmp_path}/{jobs}/{{task}}/{{method}}/seed{{seed}}")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            results.append(run_grid(recipe, ["digits_lt"], ["ce", "icda"], 2, Console(quiet=True), jobs=jobs))
        finally:
            torch.set_num_threads(threads)
    for alone, together in zip(*results, strict=True):
        assert (alone["method"], alone["seed"]) == (together["method"], together["seed"])
        assert alone["metrics"] == together["metrics"]
