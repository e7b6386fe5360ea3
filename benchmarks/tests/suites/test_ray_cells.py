"""Cells on Ray come to what they come to here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from icda.training import TrainConfig
from icda.training.grid import run_cell
from icda_bench.suites.ray_cells import run_on_ray


def test_cells_run_on_ray(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    config = TrainConfig(task="digits_lt", method="cross_entropy", model="linear", epochs=2, out=str(tmp_path / "cell"))
    bad = replace(config, method="icda", options={"lambda0": -1.0}, out=config.out + "bad")
    good = [replace(config, seed=seed, out=f"{tmp_path}/ray{{seed}}") for seed in range(2)]
    outcomes = dict(run_on_ray([*good, bad], 1))
    assert not ray.is_initialized()
    assert "InputError" in outcomes[2].failure
    torch.set_num_threads(1)
    for number, cell in enumerate(good):
        here = run_cell(replace(cell, out=f"{tmp_path}/here{{seed}}")).result
        there = outcomes[number].result
        assert there["metrics"] == here["metrics"]
    assert all(run_cell(cell).seconds == 0 for cell in good)
