"""Methods in whole trainings on two ranks, which do what one process does; the first alone writes and speaks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from icda.results import RunResult, run_result
from icda.training import TrainConfig, checkpoint, train
from icda.training.checkpoint import load_checkpoint
from support import act_as, train_until

# Two ranks: batches of 40 or 60 from 287 samples, so that the last of an epoch has a size of its own.
RANKED = {
    "icda": {"epochs": 3, "selection": "validation_accuracy", "checkpoint_every": 3},
    "risda": {"epochs": 3, "clip_norm": 1.0},
    "risda_two_stage": {"epochs": 3},
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
    "meta_icda": {"checkpoint_every": 3},
    # Adam divides a gradient by its own size: where it is nearly zero (2 weights of 10,000 here) its rounding becomes a
    # step of the whole rate, so this rate is small.
    "meta_icda_signed": {"options": {"strength_rate": 1e-5}},
    "meta_weight_net": {},
}
META = ("meta_icda", "meta_icda_signed", "meta_weight_net")
STOPPED = {"meta_icda": 5, "icda": 11}  # after so many steps, within an epoch, and resumed
STATE = (
    *META,
    "icda",
    "risda",
    "risda_two_stage",
    "ifl",
    "tde",
    "group_dro",
)  # of which all that they keep and log is compared, too
# The search for temperature and biases stops by a rule: rounding enlarged moves labels by a hundred thousandth.
TOLERANCE = {"twin_labels": 1e-4, "oltr": 2e-5, **dict.fromkeys(META, 1e-6)}


def ranked(method, folder):
    settings = {"task": "digits_lt", "model": "mlp", "epochs": 2, "batch_size": 40, **RANKED[method]}
    return TrainConfig(method=method, out=str(folder / method), **settings)


def train_on_rank(rank):
    """The files that this rank wrote, and the results that it was given."""
    act_as(rank)
    folder, written, write, results = Path(os.environ["RANKED_FOLDER"]), [], checkpoint.write_atomically, {}

    def recorded(path, content):
        written.append(path.name)
        write(path, content)

    checkpoint.write_atomically = run_result.write_atomically = recorded
    for method in os.environ["RANKED_METHODS"].split():
        if method in STOPPED:
            train_until(ranked(method, folder), STOPPED[method])
        result = train(ranked(method, folder), resume=True)
        results[method] = {name: result[name] for name in ("confusion", "selected_epoch")}
    return written, results


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
            torch.testing.assert_close(found[path], value, rtol=0, atol=1e-6 * scale, msg=f"{method}{path}")
    for mine, theirs in zip(two["history"], one["history"], strict=True):
        assert flat({**mine, "seconds": 0}) == pytest.approx(flat({**theirs, "seconds": 0}), abs=1e-5)


@pytest.mark.parametrize("half", [0, 1])
def test_two_ranks_do_what_one_process_does_and_the_first_alone_writes(half, run_on_ranks, tmp_path, monkeypatch):
    methods = list(RANKED)[half::2]
    monkeypatch.setenv("RANKED_FOLDER", str(tmp_path / "two"))
    monkeypatch.setenv("RANKED_METHODS", " ".join(methods))
    (written, results), (none, same) = run_on_ranks(train_on_rank)
    assert written.count("result.json") == len(methods)
    assert none == []
    assert results == same, "every rank returns what is on disk"
    for method in methods:
        whole = train(ranked(method, tmp_path / "one"))
        again = RunResult.read(tmp_path / "two" / method / "result.json")
        assert results[method] == {name: again[name] for name in results[method]}
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
            assert results[method] == {name: whole[name] for name in results[method]}
        if method == "lws":
            assert (one["networks"][0]["head.scale"] - 1).abs().min() > 0
        if method == "oltr":
            assert one["networks"][0]["head.has_memory"] == 1


def test_the_command_on_two_ranks_speaks_once(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "icda.cli.main", "train", "--model", "mlp", "--epochs", "1", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"}
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=300)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert printed.count("epoch 1/1") == 1
    assert printed.count("Model, log and result") == 1
    assert (tmp_path / "run" / "result.json").exists()
