"""Small trained-looking things that the explanations are tried on."""

from typing import NamedTuple

import pytest
import torch

from icda.data import Task, create_task
from icda.methods import Method, Setup, create_method
from icda.models import create_model
from icda.models.base import FeatureClassifier


class Trained(NamedTuple):
    task: Task
    networks: list[FeatureClassifier]
    method: Method


def train_briefly(task_name, method_name, steps=40):
    """A few steps of a method on all training samples: enough that weights and features agree."""
    torch.manual_seed(0)
    task = create_task(task_name)
    network = create_model(task.default_model, task.num_classes, task.input_shape)
    method = create_method(method_name, Setup.of(task, network, epochs=1))
    batch = task.train.batch(torch.arange(len(task.train)))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for step in range(steps):
        output = network(batch.inputs)
        loss = method.criterion(output.features, batch.targets, network.head, step / steps, output.logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Trained(task, [network], method)


@pytest.fixture(scope="session")
def coloured():
    """ICDA on coloured digits: two classes, four groups."""
    return train_briefly("digits_coloured", "icda")


@pytest.fixture(scope="session")
def long_tailed():
    """ICDA on long-tailed digits: ten classes, no groups."""
    return train_briefly("digits_lt", "icda")
