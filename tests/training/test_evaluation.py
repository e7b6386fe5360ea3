from dataclasses import replace

import pytest
import torch
from torch import nn

from icda.data.sources import FeatureArray
from icda.data.task import Batch, Split, Task
from icda.methods import Method
from icda.models import FeatureClassifier
from icda.training.evaluation import (
    EVALUATION_BATCH,
    evaluate_split,
    evaluating,
    group_samples,
    predict_split,
    to_device,
)
from icda.training.run import make_accelerator

COUNT = 2 * EVALUATION_BATCH + 3


@pytest.fixture
def task():
    features, targets = torch.randn(COUNT, 4), torch.arange(COUNT) % 3
    split = Split(FeatureArray(features), torch.randperm(COUNT), targets, groups=torch.arange(COUNT) % 2)
    return Task("toy", 3, split, None, split, group_names=("a", "b"), input_kind="features", input_shape=(4,))


@pytest.fixture
def model():
    encoder = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    return FeatureClassifier(encoder, nn.Linear(5, 3))


def test_predictions_come_in_the_order_of_the_split_and_without_dropout(task, model):
    logits = predict_split(Method(), [model], task.test, make_accelerator("no"))
    with evaluating(model), torch.no_grad():
        expected = model(task.test.source.fetch(task.test.rows)).logits
    torch.testing.assert_close(logits, expected)


def test_evaluation_leaves_modes_buffers_and_gradients_as_they_were(task, model):
    model.train()
    model.encoder[1].eval()  # a frozen layer inside a training model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    predict_split(Method(), [model], task.test, make_accelerator("no"))
    assert model.training
    assert model.encoder[0].training
    assert not model.encoder[1].training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_come_back_even_when_a_prediction_fails(model):
    model.train()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        model(torch.zeros(2, 4)).logits / (1 // int(model.encoder.training))
    assert model.encoder.training


def test_a_methods_own_prediction_rule_is_what_is_judged(task, model):
    class Oracle(Method):
        def predict(self, models, inputs):
            lookup = (inputs[:, None] == task.test.source.fetch(task.test.rows)[None]).all(2).float().argmax(1)
            return torch.eye(3)[task.test.targets[lookup]]

    metrics, _ = evaluate_split(Oracle(), [model], task, task.test, make_accelerator("no"))
    assert metrics["accuracy"] == 1.0
    assert metrics["worst_group_accuracy"] == 1.0


def test_overlapping_groups_of_a_split_are_what_it_is_judged_on(task, model):
    memberships = torch.stack([torch.arange(COUNT) % 2 == 0, torch.arange(COUNT) < 10, torch.zeros(COUNT).bool()], 1)
    overlapping = replace(
        task, test=replace(task.test, memberships=memberships), membership_names=("even", "first", "nobody")
    )
    metrics, logits = evaluate_split(Method(), [model], overlapping, overlapping.test, make_accelerator("no"))
    plain, _ = evaluate_split(Method(), [model], task, task.test, make_accelerator("no"))
    correct = logits.argmax(1) == task.test.targets
    assert metrics["per_group_accuracy"] == {
        "even": pytest.approx(correct[::2].double().mean().item()),
        "first": pytest.approx(correct[:10].double().mean().item()),
        "nobody": None,
    }
    assert metrics["train_weighted_accuracy"] == plain["train_weighted_accuracy"]
    assert group_samples(overlapping, overlapping.test) == [(COUNT + 1) // 2, 10, 0]


def test_the_samples_of_disjoint_groups_are_counted_and_without_groups_there_are_none(task):
    assert group_samples(task, task.test) == [(COUNT + 1) // 2, COUNT // 2]
    assert group_samples(task, task.test.without_groups()) == []


def test_a_batch_moves_with_nested_inputs_and_its_index_stays():
    batch = Batch({"ids": torch.ones(2), "names": ["a", "b"]}, torch.zeros(2), None, torch.arange(2))
    moved = to_device(batch, torch.device("meta"))
    assert moved.inputs["ids"].device.type == moved.targets.device.type == "meta"
    assert moved.inputs["names"] == ["a", "b"]
    assert moved.groups is None
    assert moved.index.device.type == "cpu"
