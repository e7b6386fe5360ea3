"""What the learned strengths say of wrong labels, as a number; whether it is a good one is the benchmark's business."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from icda.data import create_task
from icda.training import TrainConfig, train
from icda_bench.ledger import read_ledger
from icda_bench.rows import read_rows
from icda_bench.studies import meta_learning
from icda_bench.studies.meta_learning import METHODS, TASKS, Arguments, Separation, noise_separation


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
    numbers = meta_learning._numbers(task, network, method)
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


def test_the_command_runs_every_method_on_every_task_and_writes_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_learning, "TASKS", ("digits_flip_noise",))
    options = Arguments(1, 1, str(tmp_path), jobs=1, ledger=tmp_path / "meta.csv", separation=tmp_path / "apart.csv")
    meta_learning.run(options)
    rows = read_ledger(tmp_path / "meta.csv")
    assert {(row["method"], row["epochs"], row["seed"]) for row in rows} == {(method, "1", "0") for method in METHODS}
    assert read_rows(tmp_path / "apart.csv", Separation) == [
        noise_separation(tmp_path / "digits_flip_noise/meta_icda/seed0")
    ]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_metadata_of_every_class(name: str) -> None:
    metadata = create_task(name).metadata
    assert int(torch.bincount(metadata.targets).min()) > 0
