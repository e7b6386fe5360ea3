"""Self-paced learning: the moving percentile, the rule, and what is left out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.methods import Setup
from icda.methods.self_paced import SelfPaced, leave_out
from icda.models import FeatureClassifier
from support import make_batch, make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20, seed=3)
BATCH = make_batch(1, size=10)


def naive_percentile(losses: list[float], share: float) -> float:
    ordered, place = sorted(losses), share * (len(losses) - 1)
    low = int(place)
    high = min(low + 1, len(losses) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("percentile", [0.25, 0.6, 0.75, 1.0])
def test_the_threshold_is_a_moving_average_of_the_percentile(percentile: float) -> None:
    method, wanted = SelfPaced(SETUP, percentile=percentile, moving_average=0.8), None
    for _ in range(4):
        losses = torch.rand(13, dtype=torch.float64)
        now = naive_percentile(losses.tolist(), percentile)
        wanted = now if wanted is None else 0.8 * wanted + 0.2 * now
        method.observe(losses)
        assert float(method.threshold) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_step_counts_the_samples_below_the_threshold(dropout: float, model: FeatureClassifier) -> None:
    method, applied = SelfPaced(SETUP, percentile=0.6, dropout=dropout), list[Tensor]()
    losses = F.cross_entropy(model(BATCH.inputs).logits, BATCH.targets, reduction="none").tolist()
    threshold = naive_percentile(losses, 0.6)
    drawn = torch.randperm(10, generator=generator_for(3, "leave_out", 7))[: round(10 * (1 - dropout))].tolist()
    counted = [row for row in range(10) if losses[row] < threshold and (dropout == 0 or row in drawn)]
    assert 0 < len(counted) < 10
    result = method.step(BATCH, make_context(model, apply=applied.append, progress=0.5, iteration=7))
    assert float(result.loss) == pytest.approx(sum(losses[row] for row in counted) / 10)
    assert result.extra["weight_mean"] == pytest.approx(len(counted) / 10)
    assert result.extra["loss_percentile"] == pytest.approx(threshold)
    gradients = torch.autograd.grad(applied[0], list(model.parameters()))
    each = F.cross_entropy(model(BATCH.inputs).logits, BATCH.targets, reduction="none")
    wanted = torch.autograd.grad(each[counted].sum() / 10, list(model.parameters()))
    for found, expected in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(found, expected)


def test_in_the_burn_in_every_sample_counts_but_those_left_out(model: FeatureClassifier) -> None:
    result = SelfPaced(SETUP, percentile=0.1).step(BATCH, make_context(model, progress=0.16))
    assert result.extra["weight_mean"] == pytest.approx(0.5)
    whole = SelfPaced(SETUP, percentile=0.1, burn_in_dropout=0.0, burn_in=1.0)
    loss = whole.step(BATCH, make_context(model, progress=0.9)).loss
    torch.testing.assert_close(loss, F.cross_entropy(model(BATCH.inputs).logits, BATCH.targets).detach())


@pytest.mark.parametrize(("rate", "kept"), [(0.0, 10), (0.05, 9), (0.5, 5), (0.9, 1), (0.99, 1)])
def test_so_many_weights_stay(rate: float, kept: int) -> None:
    weights = torch.linspace(0.1, 1, 10)
    left = leave_out(weights, rate, torch.Generator().manual_seed(0))
    assert int((left > 0).sum()) == kept
    assert torch.equal(left[left > 0], weights[left > 0])
