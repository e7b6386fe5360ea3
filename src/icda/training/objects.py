"""Networks and tasks that a user made in Python, in the place of names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import nn

from icda.data.task import Task
from icda.errors import InputError, InputTypeError
from icda.methods.create import num_networks
from icda.models.adapters import from_torch
from icda.models.base import FeatureClassifier
from icda.training.config import TrainConfig

PREFIX = "python:"  # before the class of a model that has no name of its own
GivenModel = nn.Module | Callable[[], nn.Module]


def named(config: TrainConfig, model: GivenModel | None, task: Task | None) -> TrainConfig:
    """The settings with the names of what was given, so that result.json says what was trained on what."""
    if task is not None:
        config = replace(config, task=task.name, data=None)
    if model is not None:
        kind = type(model) if isinstance(model, nn.Module) else model
        config = replace(config, model=PREFIX + getattr(kind, "__name__", type(kind).__name__))
    return config


def make_network(model: GivenModel, config: TrainConfig, task: Task) -> FeatureClassifier:
    """A network of a run's own: a copy of the one given, or what the function given makes."""
    count = num_networks(config.method)
    if isinstance(model, nn.Module) and count > 1:
        raise InputError(
            f"method {config.method!r} trains {count} networks, which must differ: give model a function that makes one, "
            "such as its class."
        )
    made = copy.deepcopy(model) if isinstance(model, nn.Module) else model()
    if not isinstance(made, nn.Module):
        raise InputTypeError(f"model must be an nn.Module or a function that makes one, got {type(made).__name__}.")
    network = made if isinstance(made, FeatureClassifier) else from_torch(made)
    classes = network.head_weight.shape[0]
    if classes != task.num_classes:
        raise InputError(f"the model has {classes} outputs, and task {task.name!r} has {task.num_classes} classes.")
    return network.train()
