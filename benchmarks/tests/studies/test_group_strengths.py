"""Strengths by group, read off a finished run: means and AUROC against loops over samples and pairs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda_bench.rows import read_rows
from icda_bench.studies.group_strengths import (
    Arguments,
    StrengthRow,
    group_strengths_table,
    measure_group_strengths,
    run,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    recipe = TrainConfig(task="digits_coloured", method="icda", model="mlp", epochs=2, attributes="unknown")
    train(replace(recipe, out=str(folder)))
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[StrengthRow]:
    return measure_group_strengths([folder])


def test_figures_are_those_of_loops_over_samples(folder: Path, rows: list[StrengthRow]) -> None:
    _, task, (network,), _ = load_folder(folder)
    split = task.train
    with torch.no_grad():
        output = network.eval()(split.batch(torch.arange(len(split))).inputs)
    cosine = torch.nn.functional.cosine_similarity(output.features, network.head.weight[split.targets], dim=1)
    strength, right = (1 - cosine) / 2, output.logits.argmax(1) == split.targets
    assert [row.group for row in rows] == list(task.group_names or ())
    for number, row in enumerate(rows):
        mine = split.groups == number
        (label,) = split.targets[mine].unique()
        others = (split.targets == label) & ~mine
        gaps = strength[mine][:, None] - strength[others][None]
        assert row.samples == int(mine.sum())
        assert row.share_of_class == pytest.approx(float(mine.sum() / (split.targets == label).sum()), abs=1e-4)
        assert row.train_accuracy == pytest.approx(float(right[mine].float().mean()), abs=1e-4)
        assert row.strength == pytest.approx(float(strength[mine].mean()), abs=2e-4)
        assert row.auroc == pytest.approx(float(((gaps > 0).double() + 0.5 * (gaps == 0)).mean()), abs=2e-3)


def test_two_groups_of_a_class_share_one_order(rows: list[StrengthRow]) -> None:
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first.auroc + second.auroc == pytest.approx(1, abs=2e-4)


def test_a_task_without_groups_is_refused(tmp_path: Path) -> None:
    train(TrainConfig(task="digits_lt", method="icda", model="mlp", epochs=1, out=str(tmp_path)))
    with pytest.raises(ValueError, match="trained on digits_lt, which has no groups"):
        measure_group_strengths([tmp_path])


def test_the_table_gives_the_order_of_smaller_groups_only() -> None:
    large = [StrengthRow("birds", "icda", seed, "land", 90, 0.9, 1.0, 0.4, 0.1) for seed in (0, 1)]
    small = [StrengthRow("birds", "icda", seed, "water", 10, 0.1, 0.5, 0.6, 0.8 + seed / 10) for seed in (0, 1)]
    assert group_strengths_table([*large, *small]).splitlines()[2:] == [
        "| birds | icda | land | 90 | 100.0 ± 0.0 (2) | 0.400 ± 0.000 (2) |  |",
        "| birds | icda | water | 10 | 50.0 ± 0.0 (2) | 0.600 ± 0.000 (2) | 0.850 ± 0.071 (2) |",
    ]


def test_the_command_needs_runs_and_writes_a_row_for_each_group(
    folder: Path, rows: list[StrengthRow], tmp_path: Path
) -> None:
    run(Arguments((folder,), out=tmp_path / "strengths.csv"))
    assert read_rows(tmp_path / "strengths.csv", StrengthRow) == rows
    with pytest.raises(ValueError, match="folders of finished runs"):
        run(Arguments(()))
