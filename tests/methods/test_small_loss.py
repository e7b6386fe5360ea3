"""How many samples of small loss are kept, and who answers for two networks."""

import math

import pytest
import torch
from torch import nn

from icda.methods import Setup
from icda.methods.small_loss import SmallLossPair, smallest
from icda.models.base import FeatureClassifier

SETUP = Setup(3, 4, torch.ones(3), epochs=1, num_samples=3)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45, 0.9, 0.99])
@pytest.mark.parametrize("count", [1, 2, 10, 17])
def test_the_smallest_losses_are_kept_at_least_one_in_their_order(rate: float, count: int) -> None:
    losses = torch.rand(count, dtype=torch.float64)
    ranked = sorted(range(count), key=lambda i: float(losses[i]))
    wanted = sorted(ranked[: max(1, math.floor(round((1 - rate) * count, 6)))])
    assert smallest(losses, rate).tolist() == wanted


def test_of_equal_losses_the_first_are_kept() -> None:
    assert smallest(torch.ones(6), 0.5).tolist() == [0, 1, 2]


def test_the_share_dropped_ramps_up_and_stays() -> None:
    ramp, at_once = (SmallLossPair(SETUP, noise_rate=0.3, ramp_epochs=epochs) for epochs in (3, 0))
    assert [ramp.drop_rate(epoch) for epoch in range(6)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.3, 0.3])
    assert [at_once.drop_rate(epoch) for epoch in range(2)] == [0.3, 0.3]
    assert SmallLossPair(SETUP, noise_rate=0.0).drop_rate(50) == 0


def test_the_first_network_answers_or_the_mean_of_both_softmaxes() -> None:
    models = [FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double() for _ in range(2)]
    inputs = torch.randn(5, 4, dtype=torch.float64)
    one, two = (model(inputs).logits for model in models)
    assert torch.equal(SmallLossPair(SETUP).predict(models, inputs), one)
    together = SmallLossPair(SETUP, ensemble=True).predict(models, inputs)
    torch.testing.assert_close(together.softmax(1), (one.softmax(1) + two.softmax(1)) / 2)
    torch.testing.assert_close(together.exp().sum(1), torch.ones(5, dtype=torch.float64))
