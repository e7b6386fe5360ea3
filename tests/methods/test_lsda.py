"""LSDA: a variance for every sample, learned on the other half of the batch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.meta_learning import LSDA
from icda.models import FeatureClassifier
from icda.training import TrainConfig, train
from support import make_batch, make_context, meta_gradients

CLASSES, DIM, RATE = 4, 6, 0.3


def make(**options: Any) -> LSDA:
    setup = Setup(CLASSES, DIM, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75)
    return LSDA(setup, **{"hidden": 8, **options}).double().train()


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
    method, data = make(lambda0=10.0), make_batch(1)
    output = model(data.inputs)
    variances = naive_variances(method.covariance_network, output.features).detach()
    wanted = naive_loss(output.logits, data.targets, model.head.weight, variances, lam=8.0)
    found = method.loss(output, data, make_context(model, rate=RATE, progress=0.8))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)
    gradients = [torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for loss in (found, wanted)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)
    plain = method.loss(model(data.inputs), data, make_context(model, rate=RATE, progress=0.0))
    torch.testing.assert_close(plain, F.cross_entropy(model(data.inputs).logits, data.targets))


def half_gradient(method: LSDA, model: FeatureClassifier, data: Batch, *halves: slice) -> tuple[Tensor, ...]:
    """A virtual step on one half, its loss on the other."""
    one, other = (Batch(data.inputs[rows], data.targets[rows], None, data.index[rows]) for rows in halves)
    variances = naive_variances(method.covariance_network, model(one.inputs).features.detach())

    def inner(logits: Tensor, weight: Tensor) -> Tensor:
        return naive_loss(logits, one.targets, weight, variances, lam=8.0)

    return meta_gradients(model, one, other, inner, list(method.covariance_network.parameters()), RATE)


@pytest.mark.parametrize("size", [8, 9])
def test_each_half_of_the_batch_is_the_metadata_of_the_other(size: int, model: FeatureClassifier) -> None:
    method, data, half = make(lambda0=10.0, covariance_rate=50.0), make_batch(1, size), size // 2
    first, second = slice(0, half), slice(half, size)
    gradients = [half_gradient(method, model, data, *pair) for pair in ((first, second), (second, first))]
    before = [parameter.detach().clone() for parameter in method.covariance_network.parameters()]
    wanted = [value - 50.0 * (a + b) / 2 for value, a, b in zip(before, *gradients, strict=True)]
    result = method.step(data, make_context(model, rate=RATE, progress=0.8))
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
    data, method = make_batch(1), make()
    left = torch.randn_like(data.inputs)
    parts = data._replace(inputs={"left": left, "right": data.inputs - left})
    twin = copy.deepcopy(method)
    method.step(data, make_context(model, rate=RATE, progress=0.8))
    twin.step(parts, make_context(wrapped, rate=RATE, progress=0.8))
    for mine, other in zip(method.covariance_network.parameters(), twin.covariance_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def test_before_the_start_the_variances_are_not_learned(model: FeatureClassifier) -> None:
    method = make(start=0.9)
    before = copy.deepcopy(method.covariance_network.state_dict())
    assert method.step(make_batch(1), make_context(model, rate=RATE, progress=0.8)).extra == {}
    for name, value in method.covariance_network.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_epoch_with_odd_batches_trains(tmp_path: Path) -> None:
    config = TrainConfig(task="digits_lt", method="lsda", epochs=1, batch_size=57, out=str(tmp_path))
    result = train(config)
    assert result["history"][0]["meta_loss"] > 0
