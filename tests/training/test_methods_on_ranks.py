"""Methods in whole trainings on two ranks, which do what one process does."""

import os
from pathlib import Path

import pytest
import torch

from icda.results import RunResult
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint
from support import train_until

# Two ranks: batches of 40 or 60 from 287 samples, so that the last of an epoch has a size of its own.
RANKED = {
    "large_margin_softmax": {"options": {"base": 5.0, "gamma": 0.1}, "epochs": 3},
    "center_loss": {"options": {"weight": 0.01}, "epochs": 3},
    "truncated_lq": {"options": {"threshold": 0.15, "refresh": 1}, "epochs": 3},
    "disturb_label": {"options": {"alpha": 0.3}, "epochs": 3},
    "crt": {"options": {"first_stage": 0.5}, "batch_size": 60, "weight_decay": 0.01},
    "lws": {"options": {"first_stage": 0.5}, "batch_size": 60, "weight_decay": 0.01},
    # Without repulsion: its margin is on the mean distance of a rank's share.
    "oltr": {"options": {"repel": 0.0, "weight": 0.1}, "batch_size": 60, "learning_rate": 0.02},
    # Of 41, which divides 287: a second batch is drawn beside each, and as large.
    "bbn": {"batch_size": 41, "learning_rate": 0.05},
    "ifl": {"batch_size": 41, "learning_rate": 0.05, "options": {"milestones": [0.5], "centre_weights": [0.0, 0.01]}},
    "afr": {"learning_rate": 0.05},
    "ldam_drw": {"options": {"start": 0.4}},
    "tde": {"learning_rate": 0.05},
    "group_dro": {"task": "digits_coloured", "options": {"eta": 0.5, "adjustment": 1.0}, "batch_size": 150},
    "fish": {"task": "digits_coloured", "batch_size": 150},
    "elr": {"learning_rate": 0.05},
    "loss_mixture": {"learning_rate": 0.05},
    "twin_labels": {"learning_rate": 0.05},
    "meta_icda": {"checkpoint_every": 3},  # stopped within the first epoch and resumed
    # Adam divides a gradient by its own size: where it is nearly zero (2 weights of 10,000 here) its rounding becomes a
    # step of the whole rate, so this rate is small.
    "meta_icda_signed": {"options": {"strength_rate": 1e-5}},
    "meta_weight_net": {},
}
META = ("meta_icda", "meta_icda_signed", "meta_weight_net")
STATE = (*META, "ifl", "tde", "group_dro")  # of which all that they keep and log is compared, too
# The search for temperature and biases stops by a rule: rounding enlarged moves labels by a hundred thousandth.
TOLERANCE = {"twin_labels": 1e-4, "oltr": 2e-5, **dict.fromkeys(META, 1e-6)}


def ranked(method, folder):
    settings = {"task": "digits_lt", "model": "mlp", "epochs": 2, "batch_size": 40, **RANKED[method]}
    return TrainConfig(method=method, out=str(folder / method), **settings)


def train_on_rank(rank):
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}  # asked for, not used: there is a process group
    folder = Path(os.environ["RANKED_FOLDER"])
    train_until(ranked("meta_icda", folder), steps=5)
    for method in RANKED:
        train(ranked(method, folder), resume=True)


def flat(value, name=""):
    """Every leaf of nested dicts and lists under its path."""
    if not isinstance(value, dict | list | tuple):
        return {name: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {path: leaf for key, part in parts for path, leaf in flat(part, f"{name}/{key}").items()}


def check_state_and_log(two, one, method):
    """All that a method keeps, and all that it says of its epochs."""
    found, wanted = flat(two["method"]), flat(one["method"])
    assert found.keys() == wanted.keys()
    for path, value in wanted.items():
        if isinstance(value, torch.Tensor) and value.numel():
            scale = max(1.0, float(value.double().abs().max()))  # the scatter is a sum over hundreds of samples
            assert float((found[path] - value).double().abs().max()) <= 1e-6 * scale, f"{method}{path}"
    for mine, theirs in zip(two["history"], one["history"], strict=True):
        assert flat({**mine, "seconds": 0}) == pytest.approx(flat({**theirs, "seconds": 0}), abs=1e-5)


def test_two_ranks_do_what_one_process_does(run_on_ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKED_FOLDER", str(tmp_path / "two"))
    run_on_ranks(train_on_rank)
    for method in RANKED:
        whole = train(ranked(method, tmp_path / "one"))
        again = RunResult.read(tmp_path / "two" / method / "result.json")
        assert again["metrics"]["nll"] == pytest.approx(whole["metrics"]["nll"], abs=1e-4), method
        one, two = (load_checkpoint(tmp_path / side / method / "checkpoint.pt") for side in ("one", "two"))
        atol = TOLERANCE.get(method, 1e-5)
        for name, value in one["networks"][0].items():
            torch.testing.assert_close(two["networks"][0][name], value, rtol=0, atol=atol, msg=f"{method}: {name}")
        for mine, theirs in zip(two["history"], one["history"], strict=True):
            if method not in ("twin_labels", "fish"):  # the loss a rank reports is balanced within its own share
                assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=atol), method
            assert mine.get("kept_share") == theirs.get("kept_share")
        if method in STATE:
            check_state_and_log(two, one, method)
        if method == "lws":
            assert (one["networks"][0]["head.scale"] - 1).abs().min() > 0
        if method == "oltr":
            assert one["networks"][0]["head.has_memory"] == 1
