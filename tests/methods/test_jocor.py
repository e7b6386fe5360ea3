"""JoCoR: its loss against a naive sum, its selection, its limits."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from icda.methods import Setup
from icda.methods.small_loss import JoCoR, joint_losses
from icda.models import FeatureClassifier
from support import make_batch, make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20)
BATCH = make_batch(1, size=10)
RATE = 0.3


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def naive_loss(first: list[float], second: list[float], target: int, k: float) -> float:
    p, q = softmax(first), softmax(second)
    divergence = sum(a * math.log(a / b) + b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return (1 - k) * (-math.log(p[target]) - math.log(q[target])) + k * divergence


@pytest.mark.parametrize("agreement", [0.0, 0.1, 0.9, 1.0])
def test_the_loss_is_both_cross_entropies_and_both_divergences(agreement: float) -> None:
    first, second = 2 * torch.randn(7, 4, dtype=torch.float64), 2 * torch.randn(7, 4, dtype=torch.float64)
    targets = torch.arange(7) % 4
    rows = zip(first.tolist(), second.tolist(), targets.tolist(), strict=True)
    wanted = [naive_loss(*row, agreement) for row in rows]
    assert joint_losses(first, second, targets, agreement).tolist() == pytest.approx(wanted, rel=1e-10)


def test_gradients_reach_both_networks() -> None:
    first, second = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: joint_losses(a, b, torch.arange(5) % 4, 0.7), (first, second))


@pytest.mark.parametrize(("epoch", "kept"), [(0, 10), (5, 8), (10, 6)])
def test_a_step_descends_the_smallest_joint_losses_in_both(
    epoch: int, kept: int, models: list[FeatureClassifier]
) -> None:
    twins = copy.deepcopy(models)
    answers = [twin(BATCH.inputs).logits for twin in twins]
    rows = zip(answers[0].tolist(), answers[1].tolist(), BATCH.targets.tolist(), strict=True)
    losses = [naive_loss(*row, 0.3) for row in rows]
    chosen = sorted(range(10), key=lambda row: losses[row])[:kept]
    loss = joint_losses(*answers, BATCH.targets, 0.3)[chosen].mean()
    result = JoCoR(SETUP, noise_rate=0.4, agreement=0.3).step(BATCH, make_context(*models, rate=RATE, epoch=epoch))
    assert float(result.loss) == pytest.approx(sum(losses[row] for row in chosen) / kept)
    for model, twin in zip(models, twins, strict=True):
        gradients = torch.autograd.grad(loss, list(twin.parameters()), retain_graph=True)
        for value, before, gradient in zip(model.parameters(), twin.parameters(), gradients, strict=True):
            torch.testing.assert_close(value, before - RATE * gradient, rtol=1e-9, atol=1e-12)


def test_without_agreement_and_noise_they_are_two_networks_of_cross_entropy(models: list[FeatureClassifier]) -> None:
    twins = copy.deepcopy(models)
    JoCoR(SETUP, noise_rate=0.0, agreement=0.0).step(BATCH, make_context(*models, rate=RATE, epoch=99))
    for model, twin in zip(models, twins, strict=True):
        loss = F.cross_entropy(twin(BATCH.inputs).logits, BATCH.targets)
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        for value, before, gradient in zip(model.parameters(), twin.parameters(), gradients, strict=True):
            torch.testing.assert_close(value, before - RATE * gradient, rtol=1e-9, atol=1e-12)
