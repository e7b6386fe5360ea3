"""Learning from failure: weights and gradients of both networks, in a loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from icda.methods import Setup
from icda.methods.hard_samples import LfF, relative_difficulty
from icda.models import FeatureClassifier
from support import make_batch, make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=2, num_samples=20)
BATCH = make_batch(1, size=8)


def test_each_network_gets_the_gradient_of_its_own_loss(models: list[FeatureClassifier]) -> None:
    slopes: list[Tensor] = []

    def apply(loss: Tensor) -> None:
        slopes.extend(torch.autograd.grad(loss, [model.head.weight for model in models]))  # type: ignore[misc,list-item]

    result = LfF(SETUP, q=0.6).step(BATCH, make_context(*models, apply=apply))
    kept_total, biased_total, mean = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64), 0.0
    for i in range(8):
        y = int(BATCH.targets[i])
        kept, biased = (model(BATCH.inputs[[i]]).logits.softmax(1)[0, y] for model in models)
        weight = math.log(float(biased)) / (math.log(float(biased)) + math.log(float(kept)))
        kept_total = kept_total - weight * kept.log() / 8
        biased_total = biased_total + (1 - biased**0.6) / 0.6 / 8
        mean += weight / 8
    expected = (
        torch.autograd.grad(kept_total, [models[0].head.weight])[0],  # type: ignore[list-item]
        torch.autograd.grad(biased_total, [models[1].head.weight])[0],  # type: ignore[list-item]
    )
    for found, wanted in zip(slopes, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert result.extra["weight"] == pytest.approx(mean)
    assert float(result.loss) == pytest.approx(float(kept_total))


def test_equal_losses_and_no_losses_at_all_weigh_a_half() -> None:
    assert relative_difficulty(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0])).tolist() == [0.5, 0.5]
    assert relative_difficulty(torch.tensor([5.0]), torch.tensor([0.0])).tolist() == [1.0]
