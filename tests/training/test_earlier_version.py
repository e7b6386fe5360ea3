"""Files of version 0.2.0 from before a training had a StageRun and a result a type (commit 19300de): they must stay of use.

`earlier_version/` holds what a run of SETTINGS left when it was stopped in its eighth step (checkpoint.pt, model.pt), and
the result.json of the same run undisturbed.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from icda.results import RunResult
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint

EARLIER = Path(__file__).with_name("earlier_version")
SETTINGS = {
    "task": "digits_lt",
    "model": "linear",
    "method": "cross_entropy",
    "selection": "validation_accuracy",
    "epochs": 3,
    "batch_size": 64,
    "checkpoint_every": 3,
}


def test_a_checkpoint_of_the_earlier_version_goes_on_where_it_stopped(tmp_path):
    """Not to the bit, because the file may have been written on another processor; on one it is to the bit."""
    stopped = TrainConfig(**SETTINGS, out=str(tmp_path / "stopped"))
    shutil.copytree(EARLIER, stopped.folder(), ignore=shutil.ignore_patterns("result.json"))
    assert load_checkpoint(stopped.folder() / "checkpoint.pt")["position"]["batch"] == 1  # in the middle of an epoch
    resumed = train(stopped, resume=True)
    whole = train(TrainConfig(**SETTINGS, out=str(tmp_path / "whole")))
    assert [record.epoch for record in resumed.history] == [0, 1, 2]
    for one, other in zip(resumed.history, whole.history, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-5)
        assert list(one) == list(other)
    states = [load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("stopped", "whole")]
    for part in ("networks", "optimizers"):
        torch.testing.assert_close(states[0][part], states[1][part], rtol=1e-5, atol=1e-6)
    assert states[0].keys() == states[1].keys()
    assert states[0]["position"] == states[1]["position"] | {"tally": states[0]["position"]["tally"]}


def test_a_finished_run_of_the_earlier_version_is_read_and_not_run_again(tmp_path):
    config = TrainConfig(**SETTINGS, out=str(tmp_path / "done"))
    shutil.copytree(EARLIER, config.folder())
    plain = json.loads((EARLIER / "result.json").read_text())
    assert train(config, resume=True) == plain
    assert not (config.folder() / "log.jsonl").exists()


def test_a_result_of_the_earlier_version_is_written_again_as_it_was_and_with_a_version():
    plain = json.loads((EARLIER / "result.json").read_text())
    written = json.loads(RunResult.read(EARLIER / "result.json").to_json())
    assert written.pop("schema_version") == 1
    assert written == plain
    assert list(written) == list(plain)
    assert [list(record) for record in written["history"]] == [list(record) for record in plain["history"]]
