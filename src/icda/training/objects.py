"""Networks and tasks that a user made in Python, in the place of names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

from icda.data.task import Task
from icda.data.torch_datasets import seeded
from icda.errors import InputError, InputTypeError, OperationError
from icda.integrations.feature_tap import FeatureTap
from icda.methods.create import num_networks
from icda.models.adapters import from_torch
from icda.models.base import FeatureClassifier, evaluating
from icda.training.config import TrainConfig

PREFIX = "python:"  # before the class of a model that has no name of its own
GivenModel = nn.Module | Callable[[], nn.Module]


@dataclass
class OwnModel:
    """A network of the user's, or a function that makes one: split for training, and whole again afterwards.

    A network is copied unless it is trained `in_place`. `head` names its last linear layer where that cannot be found.
    """

    given: GivenModel
    head: str | None = None
    in_place: bool = False
    _made: list[_Split] = field(default_factory=list)

    def make(self, config: TrainConfig, task: Task) -> FeatureClassifier:
        """A network of a run's own, as encoder and head."""
        count = num_networks(config.method)
        if isinstance(self.given, nn.Module) and count > 1:
            raise InputError(
                f"method {config.method!r} trains {count} networks, which must differ: give model a function that makes "
                "one, such as its class."
            )
        made = self.given if isinstance(self.given, nn.Module) else self.given()
        if not isinstance(made, nn.Module):
            raise InputTypeError(f"model must be an nn.Module or a function that makes one, got {type(made).__name__}.")
        if made is self.given and not self.in_place:
            made = copy.deepcopy(made)
        split = _Split(made, self.head, task)
        self._made.append(split)
        classes = split.network.head_weight.shape[0]
        if classes != task.num_classes:
            raise InputError(f"the model has {classes} outputs, and task {task.name!r} has {task.num_classes} classes.")
        return split.network.train()

    def whole(self) -> list[nn.Module]:
        """The networks as they were given, now trained and in evaluation mode; what `make` returned is of no use then."""
        made = [split.whole().eval() for split in self._made]
        self._made.clear()
        return made


class _Split:
    """One network while it is split into encoder and head."""

    def __init__(self, module: nn.Module, head: str | None, task: Task) -> None:
        self.module, self.layers = module, dict(module.named_modules(remove_duplicate=False))
        self.trained = {parameter: parameter.requires_grad for parameter in module.parameters()}
        inputs, answer, seen = _try_out(module, task)
        try:
            self.network = _split(module, seen if head is None else head)
            _check_same_answer(self.network, inputs, answer)
        except InputError:
            for name, layer in self.layers.items():
                if name and module.get_submodule(name) is not layer:
                    module.set_submodule(name, layer)
            raise
        self.encoder = self.network.encoder
        # Of a network that was split, its head's place holds something else now.
        places = dict(module.named_modules(remove_duplicate=False))
        self.places = [name for name, layer in self.layers.items() if places.get(name) is not layer]

    def whole(self) -> nn.Module:
        """The network with its head in its place. A method that changed more than the head leaves a FeatureClassifier."""
        for parameter, trained in self.trained.items():
            parameter.requires_grad_(trained)
        if not self.places:  # it was given as encoder and head, or as a head alone
            return self.module if self.network.head is self.module else self.network
        layer, head = self.layers[self.places[0]], self.network.head
        fits = isinstance(head, nn.Linear) or isinstance(layer, nn.Linear)
        if self.network.encoder is not self.encoder or not fits:
            return self.network
        if not isinstance(layer, nn.Linear):
            state = {name: value.view_as(layer.state_dict()[name]) for name, value in head.state_dict().items()}
            layer.load_state_dict(state)
            layer.to(head.weight.device)
            head = layer
        for place in self.places:
            self.module.set_submodule(place, head)
        return self.module


def _split(module: nn.Module, head: str | None) -> FeatureClassifier:
    if isinstance(module, FeatureClassifier):
        return module
    if isinstance(module, nn.Linear):
        return FeatureClassifier(nn.Flatten(), module)
    if _is_transformers(module):
        from icda.models.huggingface import from_huggingface

        return from_huggingface(module, head=head)
    return from_torch(module, head=head)


def _is_transformers(module: nn.Module) -> bool:
    return hasattr(module, "main_input_name") and hasattr(module, "config")


def _try_out(module: nn.Module, task: Task) -> tuple[Any, Tensor | None, str | None]:
    """Run two samples: these, the logits they got, and the path of the last linear layer, where those were seen."""
    parameter = next(module.parameters(), torch.empty(0))
    inputs = send_to_device(task.train.source.fetch(task.train.rows[:2]), parameter.device)
    with FeatureTap(module) as tap, evaluating(module), seeded(0):
        try:
            result = module(**inputs) if isinstance(inputs, dict) and _is_transformers(module) else module(inputs)
        except Exception as error:  # whatever a stranger's network raises
            raise InputError(
                f"{type(module).__name__} cannot read two samples of task {task.name!r}, {_shapes(inputs)}: {error} "
                "(inputs= says which part of an item it reads, collate_fn= how a batch is made.)"
            ) from error
        try:
            layer = tap.head
        except OperationError:
            layer = None
    answer = getattr(result, "logits", result)
    path = next((name for name, part in module.named_modules() if part is layer), None)
    return inputs, answer.detach() if isinstance(answer, Tensor) else None, path


def _check_same_answer(network: FeatureClassifier, inputs: Any, answer: Tensor | None) -> None:
    """Refuse a network that does something after its last linear layer: split, it would do that to the features."""
    with torch.no_grad(), evaluating(network), seeded(0):
        logits = network(inputs).logits
    if answer is None or answer.numel() != logits.numel():
        return
    if not torch.allclose(logits, answer.reshape(logits.shape).to(logits), rtol=1e-2, atol=1e-3):
        raise InputError(
            "the model returns something else than the output of its last linear layer, such as a softmax of it: return "
            "plain logits, or name the layer that makes them, head='path.to.layer'."
        )


def _shapes(inputs: Any) -> str:
    if isinstance(inputs, dict):
        return "a dict of " + ", ".join(f"{name} {_shapes(value)}" for name, value in inputs.items())
    return str(tuple(inputs.shape)) if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"


def named(config: TrainConfig, model: OwnModel | None, task: Task | None) -> TrainConfig:
    """The settings with the names of what was given, so that result.json says what was trained on what."""
    if task is not None:
        config = replace(config, task=task.name, data=None)
    if model is not None:
        kind = type(model.given) if isinstance(model.given, nn.Module) else model.given
        config = replace(config, model=PREFIX + getattr(kind, "__name__", type(kind).__name__))
    return config
