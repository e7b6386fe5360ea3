"""Runs of one recipe: read, continued, several at a time, and what becomes of those that fail."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from icda.engines import in_processes
from icda.training import TrainConfig, grid, run
from icda.training.grid import CellOutcome, run_cell, run_cells, run_grid

QUIET = Console(quiet=True)
TASKS, METHODS = ("digits_lt", "digits"), ("cross_entropy", "icda")


@pytest.fixture
def recipe(tmp_path):
    return TrainConfig(model="linear", epochs=1, out=str(tmp_path / "{task}/{method}/seed{seed}"))


def test_cells_are_tasks_by_methods_by_seeds_with_the_rest_of_the_recipe_alike(recipe, monkeypatch):
    seen = []

    def pretend(config, **settings):
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


def test_a_finished_cell_is_read_and_not_run_again(recipe, monkeypatch):
    trained = []

    class Watched(run.Trainer):
        def run(self, resume=False):
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


def test_cells_trained_at_the_same_time_give_the_results_of_one_after_the_other(tmp_path):
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


# The functions below run in processes of their own, which must be able to import them.
DIES = "dies"


@pytest.fixture
def config(tmp_path):
    return TrainConfig(task="digits_lt", method="cross_entropy", model="linear", epochs=2, out=str(tmp_path / "cell"))


def test_a_cell_that_was_cut_short_goes_on_and_ends_where_an_unbroken_one_does(config, tmp_path, train_for):
    whole = run_cell(replace(config, out=str(tmp_path / "whole")))
    train_for(config, 4)  # within the second epoch
    assert run_cell(config).result["metrics"] == whole.result["metrics"]


def test_a_failed_cell_says_why_and_the_rest_go_on(config):
    bad = replace(config, method="icda", options={"lambda0": -1.0}, out=config.out + "bad")
    outcomes = dict(run_cells([bad, config], 1))
    assert outcomes[0].result is None
    assert outcomes[0].failure.startswith("InputError: ")
    assert "lambda0" in (bad.folder() / "failure.txt").read_text()
    assert outcomes[1].result is not None
    mended = run_cell(replace(bad, options={}))
    assert mended.result is not None
    assert not (bad.folder() / "failure.txt").exists()


def die_when_told(config):
    if config.method == DIES:
        os._exit(9)
    return CellOutcome({"seed": config.seed}, seconds=1.0)


def test_a_cell_whose_process_dies_is_reported_and_takes_no_other_along(config):
    configs = [replace(config, seed=seed) for seed in range(4)]
    configs[1] = replace(configs[1], method=DIES)
    outcomes = dict(in_processes(die_when_told, configs, 1))
    assert sorted(outcomes) == [0, 1, 2, 3]
    assert "its process died" in str(outcomes[1])
    assert [outcomes[number].result for number in (0, 2, 3)] == [{"seed": 0}, {"seed": 2}, {"seed": 3}]


def test_a_finished_cell_whose_page_is_missing_gets_it(config):
    first = run_cell(config)
    (config.folder() / "report.html").unlink()
    again = run_cell(config)
    assert (config.folder() / "report.html").exists()
    assert again.result == first.result
    assert again.seconds == 0


def test_a_result_that_is_no_result_fails_its_own_cell_by_name(config):
    config.folder().mkdir(parents=True)
    (config.folder() / "result.json").write_text("{}")
    other = replace(config, seed=1, out=config.out + "other")
    outcomes = dict(run_cells([config, other], 1))
    assert "result.json has no 'task'" in outcomes[0].failure
    assert outcomes[1].result is not None


def test_waiting_for_a_cell_that_another_process_has_is_said(config, capfd):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, config.out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    threading.Timer(0.5, other.stdin.close).start()
    assert run_cell(config).result is not None
    assert f"waiting for {config.out}, in use by process {other.pid} on" in capfd.readouterr().err
    other.wait()


HOLDS = """
import sys
from pathlib import Path
from icda.results.claims import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
