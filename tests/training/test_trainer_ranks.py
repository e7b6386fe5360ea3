"""Two ranks with half batches do what one process does with whole ones."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint

SCRIPT = Path(__file__).with_name("ranks.py")
NAMES = ("icda", "risda_two_stage", "resumed")


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which two ranks worked, and what they printed."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("ranks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("one")
    for name, settings in module.RUNS.items():
        train(TrainConfig(**settings, out=str(folder / name)))
    return folder


def reported(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rank{rank}.json").read_text())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_give_the_weights_and_statistics_of_one_process(
    name: str, two_ranks: tuple[Path, str], one_process: Path
) -> None:
    two, one = (load_checkpoint(folder / name / "checkpoint.pt") for folder in (two_ranks[0], one_process))
    for key, expected in one["networks"][0].items():
        torch.testing.assert_close(two["networks"][0][key], expected, rtol=0, atol=1e-6)
    for key, expected in one["method"].items():
        scale = max(1.0, float(expected.double().abs().max()))  # the scatter is a sum over hundreds of samples
        torch.testing.assert_close(two["method"][key], expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_give_the_history_and_metrics_of_one_process(
    name: str, two_ranks: tuple[Path, str], one_process: Path
) -> None:
    two, one = (json.loads((folder / name / "result.json").read_text()) for folder in (two_ranks[0], one_process))
    assert two["metrics"]["accuracy"] == pytest.approx(one["metrics"]["accuracy"])
    assert two["confusion"] == one["confusion"]
    assert two["selected_epoch"] == one["selected_epoch"]
    for mine, theirs in zip(two["history"], one["history"], strict=True):
        assert {key: value for key, value in mine.items() if key != "seconds"} == pytest.approx(
            {key: value for key, value in theirs.items() if key != "seconds"}, abs=1e-5
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_returns_the_result_that_is_on_disk(name: str, two_ranks: tuple[Path, str]) -> None:
    folder, _ = two_ranks
    on_disk = json.loads((folder / name / "result.json").read_text())
    for rank in (0, 1):
        given = reported(folder, rank)["results"][name]
        assert given["metrics"] == on_disk["metrics"]
        assert given["confusion"] == on_disk["confusion"]


def test_only_the_first_rank_writes_and_it_writes_each_result_once(two_ranks: tuple[Path, str]) -> None:
    folder, _ = two_ranks
    assert reported(folder, 0)["written"].count("result.json") == len(NAMES) + 1
    assert reported(folder, 1)["written"] == []
    for name in NAMES:
        lines = (folder / name / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]


def test_only_the_first_rank_speaks(two_ranks: tuple[Path, str]) -> None:
    folder, printed = two_ranks
    assert [reported(folder, rank)["results"]["command"] for rank in (0, 1)] == [{"code": 0}, {"code": 0}]
    assert printed.count("epoch 1/1") == 1
    assert printed.count("Model, log and result") == 1
