"""Meta-ICDA against a naive ICDA loss with given strengths and statistics, and its ways of keeping them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from icda import ClassStatistics, ICDALoss, StrengthNetwork
from icda.data.task import Batch
from icda.methods import Context, Method, Setup, create_method
from icda.methods.meta_icda import MetaICDAMethod
from icda.models import FeatureClassifier, create_model
from icda.registry import UnknownNameError
from icda.training import TrainConfig, train

CLASSES, DIM, RATE = 4, 6, 0.3
COUNTS = torch.tensor([40, 20, 10, 5])
KINDS = ("full", "diagonal", "low_rank")


@pytest.fixture
def model() -> FeatureClassifier:
    return create_model("mlp", CLASSES, (5,), hidden=DIM).double()


def batch(seed: int, size: int = 9) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    return Batch(inputs, torch.arange(size) % CLASSES, None, torch.arange(size))


def make(**options: Any) -> MetaICDAMethod:
    setup = Setup(CLASSES, DIM, COUNTS, epochs=1, num_samples=75)
    return MetaICDAMethod(setup, **options).double().train()


def context_of(model: FeatureClassifier, progress: float = 0.7, iteration: int = 0) -> Context:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def apply(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return Context(
        [model],
        [model],
        [optimizer],
        apply,
        lambda: iter(()),
        next_metadata=lambda: batch(99, size=8),
        progress=progress,
        iteration=iteration,
    )


def run(method: Method, model: FeatureClassifier, steps: int, progress: float = 0.7) -> list[Any]:
    context, results = context_of(model, progress), []
    for k in range(steps):
        context.iteration = k
        results.append(method.step(batch(k), context))
    return results


def naive_icda(
    features: Tensor, logits: Tensor, targets: Tensor, weight: Tensor, alpha: Tensor, mean: Tensor, cov: Tensor, lam: float
) -> Tensor:
    """Cross entropy of z + phi-hat, sample by sample and class by class (METHODS section 0)."""
    losses = []
    for i, y in enumerate(targets.tolist()):
        cosine = [float(features[i] @ w / (features[i].norm() * w.norm())) for w in weight]
        tie = [0 if c == y else max(cosine[c], 0) / (CLASSES - 1) for c in range(CLASSES)]
        adjusted = []
        for c in range(CLASSES):
            d = weight[c] - weight[y]
            mixed = cov[y] + sum(tie[j] * cov[j] for j in range(CLASSES) if j != y)
            prior = math.log(COUNTS[c] / COUNTS[y])
            phi = lam / 2 * (d @ mixed @ d) + lam * tie[c] * (d @ mean[c]) + prior + 0.1 * alpha[i]
            adjusted.append(logits[i, c] + (0 if c == y else phi))
        losses.append(torch.logsumexp(torch.stack(adjusted), 0) - adjusted[y])
    return torch.stack(losses).mean()


def dense(method: MetaICDAMethod) -> Tensor:
    cov = method.criterion.statistics.covariance
    return torch.diag_embed(cov) if cov.dim() == 2 else cov


def constant_network(value: float) -> StrengthNetwork:
    network = StrengthNetwork()
    with torch.no_grad():
        network.layers[-1].weight.zero_()
        network.layers[-1].bias.fill_(math.log(value / (1 - value)))
    return network


# -- what the real step is taken with ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_with_nothing_to_learn_it_is_icda_with_a_constant_strength(kind: str, model: FeatureClassifier) -> None:
    method = make(covariance=kind, statistics_rate=0, strength_rate=0, strength_network=constant_network(0.3))
    for k in range(3):
        data, reference = batch(k), copy.deepcopy(model)
        wanted_method = copy.deepcopy(method)
        output = reference(data.inputs)
        wanted_method.criterion.statistics.update(output.features, data.targets)
        mean, cov = wanted_method.criterion.statistics.mean, dense(wanted_method)
        alpha, weight = torch.full((9,), 0.3), reference.head.weight
        loss = naive_icda(output.features.detach(), output.logits, data.targets, weight, alpha, mean, cov, 0.35)
        loss.backward()
        result = method.step(data, context_of(model))
        torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-9, atol=0)
        for mine, parameter in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(mine, (parameter - RATE * parameter.grad).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_loss_uses_statistics_and_strengths_stepped_along_their_gradients(
    kind: str, model: FeatureClassifier
) -> None:
    """The gradients here come from `create_graph=True`, the loss from the loop above."""
    method = make(covariance=kind, statistics_rate=20.0, strength_rate=0.05, rank=2)
    run(method, model, 2)
    twin, data, metadata = copy.deepcopy(method), batch(7), batch(99, size=8)
    output = copy.deepcopy(model)(data.inputs)
    context = context_of(model)
    twin.observe(output, data, context)
    tensors, inner = twin.outer(output, data, context)
    gradients = double_backward(model, data, metadata, inner, tensors)
    count = len(list(twin.strength_network.parameters()))
    values = [t - 20.0 * g for t, g in zip(tensors[count:], gradients[count:], strict=True)]
    mean, cov = values[0], covariance_of(kind, values[1:])
    step_by_adam(twin.strength_network, gradients[:count])
    described = twin.characteristics(output.logits, output.features, data.targets, model.head.weight)
    alpha = twin.strength_network(described)
    features = output.features
    wanted = naive_icda(features, output.logits, data.targets, model.head.weight, alpha, mean, cov, 0.35)
    unstepped = twin.criterion.statistics
    assert (mean - unstepped.mean).abs().max() > 1e-3, "a correction too small to see proves nothing"
    assert (cov - dense(twin)).abs().max() > 1e-3
    result = method.step(data, context)
    torch.testing.assert_close(result.loss, wanted.detach(), rtol=1e-8, atol=0)
    for mine, other in zip(method.strength_network.parameters(), twin.strength_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)


def covariance_of(kind: str, parts: list[Tensor]) -> Tensor:
    if kind == "full":
        return (parts[0] + parts[0].mT) / 2
    diagonal = torch.diag_embed(parts[0])
    return diagonal if kind == "diagonal" else diagonal + parts[1].mT @ parts[1]


def double_backward(
    model: FeatureClassifier, data: Batch, metadata: Batch, inner: Callable[..., Tensor], tensors: Any
) -> tuple[Tensor, ...]:
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    loss = inner(functional_call(model, parameters, (data.inputs,)).logits, parameters["head.weight"])
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    moved = {name: value - RATE * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
    meta_loss = F.cross_entropy(functional_call(model, moved, (metadata.inputs,)).logits, metadata.targets)
    return torch.autograd.grad(meta_loss, list(tensors))


def step_by_adam(network: StrengthNetwork, gradients: Any) -> None:
    """The third step of Adam with decay 1e-4, its moments being those of the network's own optimiser so far."""
    optimizer = network_optimizer(network)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def network_optimizer(network: StrengthNetwork) -> torch.optim.Optimizer:
    return OPTIMIZERS[id(network)]


OPTIMIZERS: dict[int, torch.optim.Optimizer] = {}
