"""What the learned strengths say of wrong labels, as a number; whether it is a good one is the benchmark's business."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from icda.data import create_task
from icda.methods import method_names
from icda.training import TrainConfig, train
from icda_bench.studies import meta_learning
from icda_bench.studies.meta_learning import METHODS, TASKS, noise_separation, run_meta_grid


def test_separation_of_wrong_labels_is_a_share_for_each_number(tmp_path: Path) -> None:
    config = TrainConfig(task="digits_flip_noise", method="meta_icda", model="mlp", epochs=2, seed=3, out=str(tmp_path))
    train(config)
    figures = asdict(noise_separation(tmp_path))
    assert figures.pop("seed") == 3
    assert figures.keys() == {"low_learned_strength", "direct_strength", "loss"}
    assert all(0 <= value <= 1 for value in figures.values())
    assert noise_separation(tmp_path) == noise_separation(tmp_path)


def test_separation_is_the_share_of_pairs_in_the_right_order(tmp_path: Path) -> None:
    """AUROC by its definition, over all pairs of a wrong and a right label."""
    train(TrainConfig(task="digits_flip_noise", method="meta_icda", model="mlp", epochs=1, out=str(tmp_path)))
    _, task, (network,), method = meta_learning.load_folder(tmp_path)
    numbers = meta_learning._numbers(task, network, method)  # type: ignore[arg-type]
    assert task.train.clean_targets is not None
    wrong = task.train.targets != task.train.clean_targets
    found = asdict(noise_separation(tmp_path))
    for name, value in numbers.items():
        gaps = value[wrong][:, None] - value[~wrong][None]
        wanted = ((gaps > 0).double() + 0.5 * (gaps == 0)).mean()
        assert found[name] == pytest.approx(float(wanted), abs=1e-9), name


@pytest.mark.parametrize(("task", "method"), [("digits_flip_noise", "icda"), ("digits_lt", "meta_icda")])
def test_runs_without_learned_strengths_or_known_noise_are_refused(task: str, method: str, tmp_path: Path) -> None:
    train(TrainConfig(task=task, method=method, model="mlp", epochs=1, out=str(tmp_path)))
    with pytest.raises(ValueError, match="is not a Meta-ICDA run on a task with known label noise"):
        noise_separation(tmp_path)


def test_the_grid_is_every_method_on_every_task_with_one_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        meta_learning, "run_grid", lambda *arguments, jobs: given.append((*arguments, jobs)) or ["results"]
    )
    assert run_meta_grid("somewhere", seeds=2, epochs=7, jobs=3, console=Console(quiet=True)) == ["results"]
    recipe, tasks, methods, seeds, _, jobs = given[0]
    assert jobs == 3
    assert (recipe.epochs, recipe.out) == (7, "somewhere/{task}/{method}/seed{seed}")
    assert (tasks, methods, seeds) == (TASKS, METHODS, 2)
    assert set(METHODS) <= set(method_names())
    for name in TASKS:
        metadata = create_task(name).metadata
        assert metadata is not None
        assert int(torch.bincount(metadata.targets).min()) > 0
