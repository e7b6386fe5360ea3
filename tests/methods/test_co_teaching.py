"""Co-teaching: who learns from whom, and what is left without noise."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods import Setup
from icda.methods.small_loss import CoTeaching
from icda.models import FeatureClassifier
from support import make_batch, make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20)
BATCH = make_batch(1, size=10)
RATE = 0.3


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


# Without noise they are two networks of plain cross entropy.
@pytest.mark.parametrize(
    ("noise", "epoch", "kept"), [(0.4, 0, 10), (0.4, 5, 8), (0.4, 10, 6), (0.4, 50, 6), (0, 99, 10)]
)
def test_each_network_learns_from_what_the_other_finds_easy(
    noise: float, epoch: int, kept: int, models: list[FeatureClassifier]
) -> None:
    first, second = easiest(models[0], kept), easiest(models[1], kept)
    assert kept == 10 or set(first) != set(second), "a test in which both pick the same would show nothing"
    wanted = [stepped(models[0], second), stepped(models[1], first)]
    own = F.cross_entropy(models[0](BATCH.inputs).logits[second], BATCH.targets[second]).detach()
    result = CoTeaching(SETUP, noise_rate=noise).step(BATCH, make_context(*models, rate=RATE, epoch=epoch))
    for model, parameters in zip(models, wanted, strict=True):
        for name, value in model.named_parameters():
            torch.testing.assert_close(value.detach(), parameters[name], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.loss, own)
    assert result.extra["drop_rate"] == pytest.approx(1 - kept / 10)
