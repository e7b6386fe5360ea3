"""Training with a network and a task made in Python, and with a file of features."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from icda.data import create_task
from icda.errors import InputError
from icda.models import create_model
from icda.training import TrainConfig, evaluate_folder, train
from icda.training.progress import ProgressView


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.ReLU())
        self.fc = nn.Linear(16, 10)
        self(torch.zeros(1, *create_task("digits_lt").input_shape))

    def forward(self, images):
        return self.fc(self.body(images))


def test_a_named_network_and_task_given_as_objects_train_as_by_their_names(configure):
    by_name = train(configure("names", model="linear"))
    torch.manual_seed(0)
    task = create_task("digits_lt")
    given = train(
        configure("objects"), model=lambda: create_model("linear", 10, task.input_shape), task=create_task("digits_lt")
    )
    assert given.metrics == by_name.metrics
    assert given.data_hash == by_name.data_hash


def test_a_plain_module_is_trained_and_left_as_it_was(configure):
    net = Net()
    before = copy.deepcopy(net.state_dict())
    config = configure("run", epochs=2)
    result = train(config, model=net, task=create_task("digits_lt"))
    assert (result.model, result.task) == ("python:Net", "digits_lt")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert (config.folder() / "report.html").exists()
    assert train(config, model=net, task=create_task("digits_lt"), resume=True) == result
    with pytest.raises(InputError, match="made in Python"):
        evaluate_folder(config.folder())


def test_settings_may_be_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = create_task("digits_lt")
    assert train(TrainConfig(epochs=1), task=task).task == "digits_lt"
    assert (tmp_path / "runs/digits_lt/icda/seed0/result.json").exists()


def test_what_makes_no_network_is_refused(configure):
    with pytest.raises(TypeError, match=r"an nn\.Module or a function that makes one, got int"):
        train(configure("c"), model=lambda: 3, task=create_task("digits_lt"))


class Listening(ProgressView):
    said = ""

    def run(self, description):
        self.said = description


def write_features(path, **arrays):
    generator = np.random.default_rng(0)
    y = np.arange(120) % 3
    np.savez(path, **{"features": generator.normal(size=(120, 5)) + 3 * y[:, None], "y": y, **arrays})
    return path


def test_a_file_of_features_is_trained_on_and_said_before_the_first_epoch(configure, tmp_path):
    path = write_features(tmp_path / "x.npz", class_names=np.array(["cat", "dog", "seal"]))
    view = Listening()
    config = configure("run", data=str(path), method="ce", epochs=30)
    result = train(config, view=view)
    parameters = sum(value.numel() for value in create_model("mlp", 3, (5,)).parameters())
    assert view.said.splitlines() == [
        "task x: train 84, validation 12, test 24 samples",
        "3 classes, training samples of each: cat 28, dog 28, seal 28",
        f"model mlp: {parameters:,} parameters; method cross_entropy",
    ]
    assert (result.metric("accuracy") or 0) > 0.9
    assert evaluate_folder(config.folder()).metrics == result.metrics


def test_groups_and_splits_of_a_features_file_are_kept(configure, tmp_path):
    splits = np.array(["train", "val", "test"])[np.arange(120) // 3 % 3]
    path = write_features(tmp_path / "x.npz", group=np.arange(120) % 2, split=splits)
    result = train(configure("run", data=str(path), method="ce", epochs=1))
    assert result.group_names == [f"{label}, {group}" for label in range(3) for group in range(2)]
    assert sum(result.class_counts or ()) == int((splits == "train").sum())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.full((120, 5), np.nan)}, "features must be finite"),
        ({"features": np.zeros(120)}, r"features are numbers of shape \(N, A\)"),
        ({"y": np.arange(7)}, r"labels \(y\) need one value per row, 120 in all"),
        ({"split": np.array(["nope"] * 120)}, "split 'nope' is not understood"),
    ],
)
def test_a_features_file_that_cannot_be_used_is_named(arrays, message, configure, tmp_path):
    path = write_features(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=rf"x\.npz: {message}"):
        train(configure("run", data=str(path)))
