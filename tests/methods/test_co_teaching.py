"""Co-teaching: who learns from whom, and what is left without noise."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Context, Setup
from icda.methods.co_teaching import CoTeaching
from icda.models import FeatureClassifier, create_model
from support import make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20)
BATCH = Batch(
    torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    torch.arange(10) % 4,
    None,
    torch.arange(10),
)
RATE = 0.3


@pytest.fixture
def models() -> list[FeatureClassifier]:
    return [create_model("mlp", 4, (5,), hidden=6).double() for _ in range(2)]


def context_of(models: list[FeatureClassifier], epoch: int = 99) -> Context:
    return make_context(*models, rate=RATE, epoch=epoch)


def stepped(model: FeatureClassifier, rows: list[int]) -> dict[str, Tensor]:
    """The parameters after one step of plain descent on some samples of the batch."""
    twin = copy.deepcopy(model)
    each = F.cross_entropy(twin(BATCH.inputs).logits, BATCH.targets, reduction="none")
    loss = torch.stack([each[row] for row in rows]).sum() / len(rows)
    gradients = torch.autograd.grad(loss, list(twin.parameters()))
    named = zip(twin.named_parameters(), gradients, strict=True)
    return {name: (value - RATE * gradient).detach() for (name, value), gradient in named}


def easiest(model: FeatureClassifier, count: int) -> list[int]:
    logits = model(BATCH.inputs).logits.log_softmax(1).detach()
    losses = [-float(logits[row, int(BATCH.targets[row])]) for row in range(10)]
    return sorted(range(10), key=lambda row: losses[row])[:count]


@pytest.mark.parametrize(("epoch", "kept"), [(0, 10), (5, 8), (10, 6), (50, 6)])
def test_each_network_learns_from_what_the_other_finds_easy(
    epoch: int, kept: int, models: list[FeatureClassifier]
) -> None:
    first, second = easiest(models[0], kept), easiest(models[1], kept)
    assert kept == 10 or set(first) != set(second), "a test in which both pick the same would show nothing"
    wanted = [stepped(models[0], second), stepped(models[1], first)]
    own = F.cross_entropy(models[0](BATCH.inputs).logits[second], BATCH.targets[second]).detach()
    result = CoTeaching(SETUP, noise_rate=0.4).step(BATCH, context_of(models, epoch))
    for model, parameters in zip(models, wanted, strict=True):
        for name, value in model.named_parameters():
            torch.testing.assert_close(value.detach(), parameters[name], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.loss, own)
    assert result.extra["drop_rate"] == pytest.approx(1 - kept / 10)


def test_without_noise_they_are_two_networks_of_plain_cross_entropy(models: list[FeatureClassifier]) -> None:
    wanted = [stepped(model, list(range(10))) for model in models]
    CoTeaching(SETUP, noise_rate=0.0).step(BATCH, context_of(models))
    for model, parameters in zip(models, wanted, strict=True):
        for name, value in model.named_parameters():
            torch.testing.assert_close(value.detach(), parameters[name], rtol=1e-10, atol=1e-12)


def test_it_asks_for_two_networks() -> None:
    assert CoTeaching.num_networks == 2
