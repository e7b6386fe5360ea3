"""A package with entry points of every kind, installed by pip: found, trained, resumed, reported."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from icda.training.checkpoint import load_checkpoint
from support import write_photos

HERE = Path(__file__).parent
KILLED = HERE.parent / "training" / "killed.py"
MOONS = ["--task", "two_moons", "--epochs", "3", "--batch-size", "100"]


def write_texts(path):
    """Reviews whose class is the letter they begin with."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "split"])
        for number in range(90):
            letter = "ab"[number % 2]
            rows.writerow([letter * (3 + number % 5), letter, ("train", "validation", "test")[number % 3]])


@pytest.fixture
def answers(run_where_installed, tmp_path):
    write_texts(tmp_path / "texts.csv")
    write_photos(tmp_path / "images", 6)
    rule = ["--selection", "validation_compromise"]
    train, letters = ["train", "--quiet"], ["--data", "texts.csv", "--model", "letters"]
    commands = {
        "list": ["list"],
        "loss": [*train, *MOONS, "--method", "flat_margin", "--set", "margin=0.5", *rule, "--out", "loss"],
        "method": [*train, *MOONS, "--method", "clipped_loss", "--model", "tanh_net", "--out", "method"],
        "eval": ["eval", "method", "--json"],
        "text": [*train, *letters, "--epochs", "8", "--batch-size", "8", "--out", "text"],
        "embed": ["embed", "images", "--encoder", "mean_colour", "--out", "features.npz"],
        "report": ["report", "loss", "method", "--out", "page.html"],
    }
    found = json.loads(run_where_installed(HERE / "commands.py", json.dumps(list(commands.values()))))
    return {name: tuple(answer) for name, answer in zip(commands, found, strict=True)}


def test_one_package_brings_a_plugin_of_every_kind_to_every_command(answers, tmp_path):
    assert [name for name, (code, _, _) in answers.items() if code != 0] == [], answers
    listed = " ".join(answers["list"][1].replace("│", " ").split())
    for name in ("two_moons", "clipped_loss", "flat_margin", "tanh_net", "validation_compromise", "worst_confusion"):
        assert re.search(rf"\b{name}\b.*?\(package icda-example\)", listed), name

    loss = json.loads((tmp_path / "loss/result.json").read_text())
    assert loss["config"]["options"] == {"margin": 0.5}
    assert "plugin" not in loss["config"]  # it is installed: nothing was named
    assert loss["environment"]["plugins"] == {"icda-example": "0.3.0"}
    scores = [epoch["validation_accuracy"] + epoch["validation_worst_class_accuracy"] for epoch in loss["history"]]
    assert loss["selected_epoch"] == int(np.argmax(scores))

    confusion = np.array(loss["confusion"], dtype=float)
    shares = confusion / confusion.sum(1, keepdims=True)
    assert loss["metrics"]["worst_confusion"] == max(shares[0, 1], shares[1, 0])

    method = json.loads((tmp_path / "method/result.json").read_text())
    assert json.loads(answers["eval"][1])["metrics"] == method["metrics"]
    page = (tmp_path / "page.html").read_text()
    assert "clipped_loss" in page
    assert "Worst confusion (%)" in page
    assert "flat_margin" in page

    text = json.loads((tmp_path / "text/result.json").read_text())
    assert text["metrics"]["accuracy"] == 1.0  # the letters tell the classes apart
    features = np.load(tmp_path / "features.npz")
    assert features["features"].shape == (6, 3)


def test_a_training_with_a_plugins_method_and_metric_ends_bit_identical_after_kills(run_where_installed, tmp_path):
    options = [*MOONS, "--method", "clipped_loss", "--model", "tanh_net", "--checkpoint-every", "1"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    output = run_where_installed(
        KILLED, whole, killed, 0, *options, "--selection", "validation_worst_confusion", "--set", "cap=1.2"
    )
    assert int(re.findall(r"killed (\d+)", output)[0]) >= 1
    models = [load_checkpoint(folder / "model.pt") for folder in (whole, killed)]
    networks, states = ([model[part] for model in models] for part in ("networks", "method"))
    assert networks[0][0].keys() == networks[1][0].keys()
    assert all(networks[0][0][name].equal(networks[1][0][name]) for name in networks[0][0])
    assert states[0]["running_mean"] > 0
    assert states[0]["running_mean"].equal(states[1]["running_mean"])
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, killed)]
    assert results[0]["selected_epoch"] == results[1]["selected_epoch"]
    assert results[0]["metrics"] == results[1]["metrics"]
