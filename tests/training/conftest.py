"""Short runs on the embedded digits, and what it means that two of them are the same."""

import json

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint

UNRELATED = {"seconds", "environment", "config"}  # may differ between two runs that are otherwise the same


@pytest.fixture
def configure(tmp_path):
    """`configure(name, **settings)`: three epochs of five batches on digits_lt, files under tmp_path/name."""

    def make(name, **settings):
        return TrainConfig(**{"epochs": 3, "batch_size": 64, "out": str(tmp_path / name), **settings})

    return make


@pytest.fixture
def assert_same_run():
    """`assert_same_run(one, other)`: bit-identical checkpoint, model and result, and a log line per epoch."""

    def check(one, other):
        for name in ("checkpoint.pt", "model.pt"):
            _assert_equal(load_checkpoint(one / name), load_checkpoint(other / name), name)
        results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
        _assert_equal(*results, "result")
        for folder, result in zip((one, other), results, strict=True):
            lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
            assert lines == result["history"]
            assert [line["epoch"] for line in lines] == list(range(len(lines)))

    return check


@pytest.fixture
def assert_resumes(configure, train_for, assert_same_run):
    """`assert_resumes(kills, **settings)`: killed after so many steps each time and resumed, a run ends as a whole one.

    The whole run is made unless its folder is given; `every` is how often the other one writes a checkpoint.
    """

    def check(*kills, every=2, whole=None, **settings):
        if whole is None:
            whole = configure("whole", **settings).folder()
            train(configure("whole", **settings))
        config = configure("stopped", checkpoint_every=every, **settings)
        for steps in kills:
            train_for(config, steps, resume=True)
            torch.rand(17)  # what happens between a kill and the resumption must not matter
        train(config, resume=True)
        assert_same_run(whole, config.folder())
        return whole

    return check


def _assert_equal(one, other, where):
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - UNRELATED:
            _assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for position, pair in enumerate(zip(one, other, strict=True)):
            _assert_equal(*pair, f"{where}[{position}]")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    else:
        assert one == other, where
