"""Two ranks with half batches do what one process does with whole ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint
from support import load_module

SCRIPT = Path(__file__).with_name("ranks.py")


def run_on_two_ranks(folder):
    """Let two ranks work in a folder; what they print."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def check_weights_and_statistics(two, one):
    found, wanted = (load_checkpoint(folder / "checkpoint.pt") for folder in (two, one))
    for key, expected in wanted["networks"][0].items():
        torch.testing.assert_close(found["networks"][0][key], expected, rtol=0, atol=1e-6)
    for key, expected in wanted["method"].items():
        scale = max(1.0, float(expected.double().abs().max()))  # the scatter is a sum over hundreds of samples
        torch.testing.assert_close(found["method"][key], expected, rtol=0, atol=1e-6 * scale)


def check_history_and_metrics(found, wanted):
    assert found["metrics"]["accuracy"] == pytest.approx(wanted["metrics"]["accuracy"])
    assert found["confusion"] == wanted["confusion"]
    assert found["selected_epoch"] == wanted["selected_epoch"]
    for mine, theirs in zip(found["history"], wanted["history"], strict=True):
        assert mine | {"seconds": 0} == pytest.approx(theirs | {"seconds": 0}, abs=1e-5)


def check_that_only_the_first_rank_wrote(folder, reports, runs):
    assert reports[0]["written"].count("result.json") == len(runs) + 1
    assert reports[1]["written"] == []
    for name in runs:
        result, lines = result_of(folder / name), (folder / name / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]
        for report in reports:  # but every rank returns what is on disk
            assert report["results"][name]["metrics"] == result["metrics"]
            assert report["results"][name]["confusion"] == result["confusion"]


def check_that_only_the_first_rank_spoke(printed, reports):
    assert [report["results"]["command"] for report in reports] == [{"code": 0}, {"code": 0}]
    assert printed.count("epoch 1/1") == 1
    assert printed.count("Model, log and result") == 1


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def test_two_ranks_do_what_one_process_does_and_the_first_alone_writes_and_speaks(tmp_path):
    """One test, because starting the ranks takes longer than all they do."""
    two, one, runs = tmp_path / "two", tmp_path / "one", load_module(SCRIPT, "ranks").RUNS
    two.mkdir()
    printed = run_on_two_ranks(two)
    reports = [json.loads((two / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    for name, settings in runs.items():
        train(TrainConfig(**settings, out=str(one / name)))
        check_weights_and_statistics(two / name, one / name)
        check_history_and_metrics(result_of(two / name), result_of(one / name))
    check_that_only_the_first_rank_wrote(two, reports, list(runs))
    check_that_only_the_first_rank_spoke(printed, reports)
