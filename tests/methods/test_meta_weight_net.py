"""Meta-Weight-Net: its weights, and what they do to the loss."""

from __future__ import annotations

import copy
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.meta_learning import MetaWeightNet
from icda.models import FeatureClassifier
from icda.training import TrainConfig, train
from support import make_batch, make_context, meta_gradients

CLASSES, DIM, RATE = 4, 6, 0.3
METADATA = make_batch(99, size=8)
context_of = partial(make_context, rate=RATE, progress=0.5, next_metadata=lambda: METADATA)


def make(groups: Tensor | None = None, **options: Any) -> MetaWeightNet:
    setup = Setup(CLASSES, DIM, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75, group_counts=groups)
    return MetaWeightNet(setup, **options).double().train()


def naive_weights(method: MetaWeightNet, losses: list[float], normalise: bool = False) -> list[float]:
    first, _, last = method.weight_network.layers
    weights = []
    for loss in losses:
        hidden = [max(w * loss + b, 0) for w, b in zip(first.weight[:, 0].tolist(), first.bias.tolist(), strict=True)]
        output = sum(w * h for w, h in zip(last.weight[0].tolist(), hidden, strict=True)) + float(last.bias.detach())
        weights.append(1 / (1 + math.exp(-output)))
    return [w * len(weights) / sum(weights) for w in weights] if normalise else weights


@pytest.mark.parametrize("normalise", [False, True])
def test_weights_are_a_sigmoid_of_one_hidden_layer_over_the_loss(normalise: bool) -> None:
    method, losses = make(normalise=normalise), [0.01, 0.5, 2.0, 7.5]
    found = method.weights(torch.tensor(losses, dtype=torch.float64))
    assert found.tolist() == pytest.approx(naive_weights(method, losses, normalise), rel=1e-10)
    assert not normalise or float(found.detach().mean()) == pytest.approx(1)
    assert method.weight_network.layers[0].out_features == 100


@pytest.mark.parametrize("options", [{}, {"normalise": True}, {"recipe": "long_tail"}])
def test_a_step_learns_the_weights_and_then_descends_the_weighted_loss(
    options: dict[str, Any], model: FeatureClassifier
) -> None:
    method, reference, data = make(**options, weight_rate=0.05), copy.deepcopy(model), make_batch(1)
    twin = copy.deepcopy(method)
    step_by_double_backward(twin, reference, data)
    losses = F.cross_entropy(reference(data.inputs).logits, data.targets, reduction="none")
    weights = torch.tensor(naive_weights(twin, losses.tolist(), bool(options)), dtype=torch.float64)
    loss = (weights * losses).mean()  # the weights are constants: no gradient goes through them
    gradients = torch.autograd.grad(loss, list(reference.parameters()))
    result = method.step(data, context_of(model))
    for mine, other in zip(method.weight_network.parameters(), twin.weight_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-9, atol=0)
    for mine, before, gradient in zip(model.parameters(), reference.parameters(), gradients, strict=True):
        torch.testing.assert_close(mine, before - RATE * gradient, rtol=1e-9, atol=1e-12)


def step_by_double_backward(method: MetaWeightNet, model: FeatureClassifier, data: Batch) -> None:
    """An optimiser step on the gradient of the metadata loss through a virtual step, as the original codes have it."""
    network = method.weight_network
    first, _, last = network.layers

    def inner(logits: Tensor, weight: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, data.targets, reduction="none")
        read = losses if method.recipe == "long_tail" else losses.detach()
        weights = [
            torch.sigmoid((last.weight[0] * (first.weight[:, 0] * x + first.bias).relu()).sum() + last.bias[0])
            for x in read
        ]
        total = sum(weights) if method.normalise else float(len(losses))
        return sum(weight / total * x for weight, x in zip(weights, losses, strict=True))

    optimizer: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), lr=0.05, weight_decay=1e-4)
    if method.recipe == "long_tail":
        settings = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, **settings)
    gradients = meta_gradients(model, data, METADATA, inner, list(network.parameters()), RATE)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def test_the_recipe_says_how_the_network_learns_unless_a_rate_is_given() -> None:
    usual = make(recipe="long_tail").optimizer
    assert isinstance(usual, torch.optim.SGD)
    names = ("lr", "momentum", "nesterov", "weight_decay")
    assert [usual.defaults[name] for name in names] == [1e-5, 0.9, True, 5e-4]
    noise = make().optimizer
    assert isinstance(noise, torch.optim.Adam)
    assert (noise.defaults["lr"], noise.defaults["weight_decay"]) == (1e-3, 1e-4)
    assert make(recipe="long_tail", weight_rate=0.0).optimizer.defaults["lr"] == 0
    with pytest.raises(ValueError, match=r"recipe .*'tail'"):
        make(recipe="tail")


def test_before_the_start_it_is_cross_entropy(model: FeatureClassifier) -> None:
    method = make(start=0.5)
    wanted = F.cross_entropy(model(make_batch(1).inputs).logits, make_batch(1).targets).detach()
    result = method.step(make_batch(1), context_of(model, progress=0.49))
    torch.testing.assert_close(result.loss, wanted, rtol=1e-14, atol=0)
    assert result.extra == {}
    assert method.epoch_figures() == {}


def test_the_weights_given_out_are_logged_by_class_and_group(model: FeatureClassifier) -> None:
    method, data = (
        make(groups=torch.tensor([40, 35]), weight_rate=0.0),
        make_batch(1)._replace(groups=torch.arange(9) % 2),
    )
    losses = F.cross_entropy(model(data.inputs).logits, data.targets, reduction="none").tolist()
    weights = naive_weights(method, losses)
    method.step(data, context_of(model))
    figures = method.epoch_figures()
    assert figures.keys() == {"weight_mean", "weight_by_class", "weight_by_group"}
    assert figures["weight_mean"] == pytest.approx(sum(weights) / 9)
    assert figures["weight_by_class"][3] == pytest.approx((weights[3] + weights[7]) / 2)
    assert figures["weight_by_group"][1] == pytest.approx(sum(weights[1::2]) / 4)


def test_it_trains_with_a_cheaper_look_ahead(tmp_path: Path) -> None:
    options = {"lookahead": "head", "every": 2}
    result = train(TrainConfig(task="digits_lt", method="mwn", options=options, epochs=1, out=str(tmp_path)))
    assert result["method"] == "meta_weight_net"
    assert 0 < result["history"][0]["weight_mean"] < 1
