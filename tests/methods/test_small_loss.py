"""Samples of small loss: how many are kept, and what co-teaching and JoCoR learn from them."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.methods import Setup
from icda.methods.co_teaching import CoTeaching
from icda.methods.jocor import JoCoR, joint_losses
from icda.methods.small_loss import SmallLossPair, smallest
from icda.models.base import FeatureClassifier
from support import make_batch, make_context

SMALL = Setup(3, 4, torch.ones(3), epochs=1, num_samples=3)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45, 0.9, 0.99])
@pytest.mark.parametrize("count", [1, 2, 10, 17])
def test_the_smallest_losses_are_kept_at_least_one_in_their_order(rate, count):
    losses = torch.rand(count, dtype=torch.float64)
    ranked = sorted(range(count), key=lambda i: float(losses[i]))
    wanted = sorted(ranked[: max(1, math.floor(round((1 - rate) * count, 6)))])
    assert smallest(losses, rate).tolist() == wanted


def test_of_equal_losses_the_first_are_kept():
    assert smallest(torch.ones(6), 0.5).tolist() == [0, 1, 2]


def test_the_share_dropped_ramps_up_and_stays():
    ramp, at_once = (SmallLossPair(SMALL, noise_rate=0.3, ramp_epochs=epochs) for epochs in (3, 0))
    assert [ramp.drop_rate(epoch) for epoch in range(6)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.3, 0.3])
    assert [at_once.drop_rate(epoch) for epoch in range(2)] == [0.3, 0.3]
    assert SmallLossPair(SMALL, noise_rate=0.0).drop_rate(50) == 0


def test_the_first_network_answers_or_the_mean_of_both_softmaxes():
    models = [FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double() for _ in range(2)]
    inputs = torch.randn(5, 4, dtype=torch.float64)
    one, two = (model(inputs).logits for model in models)
    assert torch.equal(SmallLossPair(SMALL).predict(models, inputs), one)
    together = SmallLossPair(SMALL, ensemble=True).predict(models, inputs)
    torch.testing.assert_close(together.softmax(1), (one.softmax(1) + two.softmax(1)) / 2)
    torch.testing.assert_close(together.exp().sum(1), torch.ones(5, dtype=torch.float64))


SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20)
BATCH = make_batch(1, size=10)
RATE = 0.3


def stepped(model, rows):
    """The parameters after one step of plain descent on some samples of the batch."""
    twin = copy.deepcopy(model)
    each = F.cross_entropy(twin(BATCH.inputs).logits, BATCH.targets, reduction="none")
    loss = torch.stack([each[row] for row in rows]).sum() / len(rows)
    gradients = torch.autograd.grad(loss, list(twin.parameters()))
    named = zip(twin.named_parameters(), gradients, strict=True)
    return {name: (value - RATE * gradient).detach() for (name, value), gradient in named}


def easiest(model, count):
    logits = model(BATCH.inputs).logits.log_softmax(1).detach()
    losses = [-float(logits[row, int(BATCH.targets[row])]) for row in range(10)]
    return sorted(range(10), key=lambda row: losses[row])[:count]


# Without noise they are two networks of plain cross entropy.
@pytest.mark.parametrize(
    ("noise", "epoch", "kept"), [(0.4, 0, 10), (0.4, 5, 8), (0.4, 10, 6), (0.4, 50, 6), (0, 99, 10)]
)
def test_each_network_learns_from_what_the_other_finds_easy(noise, epoch, kept, models):
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


def softmax(row):
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def naive_loss(first, second, target, k):
    p, q = softmax(first), softmax(second)
    divergence = sum(a * math.log(a / b) + b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return (1 - k) * (-math.log(p[target]) - math.log(q[target])) + k * divergence


@pytest.mark.parametrize("agreement", [0.0, 0.1, 0.9, 1.0])
def test_the_loss_is_both_cross_entropies_and_both_divergences(agreement):
    first, second = 2 * torch.randn(7, 4, dtype=torch.float64), 2 * torch.randn(7, 4, dtype=torch.float64)
    targets = torch.arange(7) % 4
    rows = zip(first.tolist(), second.tolist(), targets.tolist(), strict=True)
    wanted = [naive_loss(*row, agreement) for row in rows]
    assert joint_losses(first, second, targets, agreement).tolist() == pytest.approx(wanted, rel=1e-10)


def test_gradients_reach_both_networks():
    first, second = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: joint_losses(a, b, torch.arange(5) % 4, 0.7), (first, second))


@pytest.mark.parametrize(("epoch", "kept"), [(0, 10), (5, 8), (10, 6)])
def test_a_step_descends_the_smallest_joint_losses_in_both(epoch, kept, models):
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


def test_without_agreement_and_noise_they_are_two_networks_of_cross_entropy(models):
    twins = copy.deepcopy(models)
    JoCoR(SETUP, noise_rate=0.0, agreement=0.0).step(BATCH, make_context(*models, rate=RATE, epoch=99))
    for model, twin in zip(models, twins, strict=True):
        loss = F.cross_entropy(twin(BATCH.inputs).logits, BATCH.targets)
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        for value, before, gradient in zip(model.parameters(), twin.parameters(), gradients, strict=True):
            torch.testing.assert_close(value, before - RATE * gradient, rtol=1e-9, atol=1e-12)
