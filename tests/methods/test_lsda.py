"""LSDA: a variance for every sample, learned on the other half of the batch."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Context, Setup, check_needs
from icda.methods.lsda import LSDA
from icda.models import FeatureClassifier, create_model
from icda.training import TrainConfig, train
from support import make_context

CLASSES, DIM, RATE = 4, 6, 0.3


@pytest.fixture
def model() -> FeatureClassifier:
    return create_model("mlp", CLASSES, (5,), hidden=DIM).double()


def batch(seed: int, size: int = 9) -> Batch:
    inputs = torch.randn(size, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Batch(inputs, torch.arange(size) % CLASSES, None, torch.arange(size))


def make(**options: Any) -> LSDA:
    setup = Setup(CLASSES, DIM, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75)
    return LSDA(setup, **{"hidden": 8, **options}).double().train()


def context_of(model: FeatureClassifier, progress: float = 0.8) -> Context:
    return make_context(model, rate=RATE, progress=progress)


def naive_variances(network: nn.Module, features: Tensor) -> Tensor:
    first, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    hidden = torch.relu(features @ first.weight.T + first.bias)
    return 1 / (1 + torch.exp(-(hidden @ last.weight.T + last.bias)))


def naive_loss(logits: Tensor, targets: Tensor, weight: Tensor, variances: Tensor, lam: float) -> Tensor:
    losses = []
    for i, y in enumerate(targets.tolist()):
        differences = [weight[c] - weight[y] for c in range(CLASSES)]
        terms = [lam / 2 * (d * variances[i] * d).sum() for d in differences]
        adjusted = torch.stack([logits[i, c] + term for c, term in enumerate(terms)])
        losses.append(torch.logsumexp(adjusted, 0) - adjusted[y])
    return torch.stack(losses).mean()


def test_the_loss_augments_each_sample_along_its_own_variances(model: FeatureClassifier) -> None:
    method, data = make(lambda0=10.0), batch(1)
    output = model(data.inputs)
    variances = naive_variances(method.covariance_network, output.features).detach()
    wanted = naive_loss(output.logits, data.targets, model.head.weight, variances, lam=8.0)
    found = method.loss(output, data, context_of(model))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)
    gradients = [torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for loss in (found, wanted)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)
    plain = method.loss(model(data.inputs), data, context_of(model, progress=0.0))
    torch.testing.assert_close(plain, F.cross_entropy(model(data.inputs).logits, data.targets))


def half_gradient(method: LSDA, model: FeatureClassifier, data: Batch, rows: slice, others: slice) -> list[Tensor]:
    """The textbook: a virtual step on one half, its loss on the other, double backward."""
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    output = functional_call(model, parameters, (data.inputs[rows],))
    variances = naive_variances(method.covariance_network, output.features.detach())
    loss = naive_loss(output.logits, data.targets[rows], parameters["head.weight"], variances, lam=8.0)
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    moved = {name: value - RATE * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
    meta_loss = F.cross_entropy(functional_call(model, moved, (data.inputs[others],)).logits, data.targets[others])
    return list(torch.autograd.grad(meta_loss, list(method.covariance_network.parameters())))


@pytest.mark.parametrize("size", [8, 9])
def test_each_half_of_the_batch_is_the_metadata_of_the_other(size: int, model: FeatureClassifier) -> None:
    method, data, half = make(lambda0=10.0, covariance_rate=50.0), batch(1, size), size // 2
    first, second = slice(0, half), slice(half, size)
    gradients = [half_gradient(method, model, data, *pair) for pair in ((first, second), (second, first))]
    before = [parameter.detach().clone() for parameter in method.covariance_network.parameters()]
    wanted = [value - 50.0 * (a + b) / 2 for value, a, b in zip(before, *gradients, strict=True)]
    result = method.step(data, context_of(model))
    assert result.extra["meta_loss"] > 0
    moved = 0.0
    for mine, other, old in zip(method.covariance_network.parameters(), wanted, before, strict=True):
        torch.testing.assert_close(mine.detach(), other, rtol=1e-8, atol=1e-11)
        moved = max(moved, float((other - old).abs().max()))
    assert moved > 1e-4, "a step too small to see proves nothing"


def test_halves_of_a_dict_of_inputs_are_cut_along_the_samples(model: FeatureClassifier) -> None:
    class Summed(nn.Module):
        def forward(self, inputs: dict[str, Tensor]) -> Tensor:
            return inputs["left"] + inputs["right"]

    wrapped = FeatureClassifier(nn.Sequential(Summed(), copy.deepcopy(model.encoder)), copy.deepcopy(model.head))
    data, method = batch(1), make()
    left = torch.randn_like(data.inputs)
    parts = data._replace(inputs={"left": left, "right": data.inputs - left})
    twin = copy.deepcopy(method)
    method.step(data, context_of(model))
    twin.step(parts, context_of(wrapped))
    for mine, other in zip(method.covariance_network.parameters(), twin.covariance_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def test_before_the_start_the_variances_are_not_learned(model: FeatureClassifier) -> None:
    method = make(start=0.9)
    before = copy.deepcopy(method.covariance_network.state_dict())
    assert method.step(batch(1), context_of(model, progress=0.8)).extra == {}
    for name, value in method.covariance_network.state_dict().items():
        assert torch.equal(value, before[name])


def test_it_needs_no_metadata() -> None:
    task = replace(create_task("digits_lt"), metadata=None)
    check_needs("lsda", LSDA.needs, task)


def test_an_epoch_with_odd_batches_trains(tmp_path: Path) -> None:
    config = TrainConfig(task="digits_lt", method="lsda", epochs=1, batch_size=57, out=str(tmp_path))
    result = train(config)
    assert result["history"][0]["meta_loss"] > 0
