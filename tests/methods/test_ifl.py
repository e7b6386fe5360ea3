import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses import LogitAdjustmentLoss
from icda.methods import Setup
from icda.methods.ifl import IFL, environment_weights, join_batches
from icda.models.base import FeatureClassifier, Output
from support import make_context, make_network

COUNTS = torch.tensor([12, 6, 3])
TARGETS = torch.repeat_interleave(torch.arange(3), COUNTS)
INPUTS = torch.randn(21, 4, generator=torch.Generator().manual_seed(1))


def make(**options):
    setup = Setup(num_classes=3, feature_dim=5, class_counts=COUNTS, epochs=100, num_samples=21)
    return IFL(setup, **options)


def context_of(network, epoch, second=None):
    def draw(sampling):
        assert sampling == "own"
        return second

    networks = [] if network is None else [network]
    step = {"apply": lambda loss: loss.backward(), "draw": draw}
    return make_context(*networks, data=(INPUTS, TARGETS), epoch=epoch, **step)


def naive_weights(probabilities, targets, ratio, balanced):
    """The rule, sample by sample."""
    weights = [0.0] * len(targets)
    for label in set(targets):
        rows = [i for i, target in enumerate(targets) if target == label]
        own = [probabilities[i] for i in rows]
        scores = [1.0] * len(rows)
        if len(rows) >= 5:
            scores = [1 - (p - min(own)) / (max(own) - min(own) + 1e-9) + 1e-5 for p in own]
            ordered = sorted(scores)
            easy, hard = ordered[: int(0.8 * len(rows))], ordered[-int(0.2 * len(rows)) :]
            found = (sum(hard) / len(hard)) / (sum(easy) / len(easy))
            exponent = min(max(math.log(ratio) / math.log(found), 1), 10)
            scores = [score**exponent for score in scores]
        for i, score in zip(rows, scores, strict=True):
            weights[i] = score / sum(scores) * (1 if balanced else len(rows))
    return weights


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("ratio", [1.5, 4.0, 50.0])
def test_weights_of_the_second_environment_follow_the_rule(ratio, balanced):
    targets = torch.arange(83) % 4
    targets[:3] = 4  # a class too small to have a hardest fifth
    probabilities = torch.rand(83, dtype=torch.float64)
    found = environment_weights(probabilities, targets, ratio, balanced)
    expected = naive_weights(probabilities.tolist(), targets.tolist(), ratio, balanced)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    for label in range(5):
        own = targets == label
        assert float(found[own].sum()) == pytest.approx(1 if balanced else int(own.sum()))


def test_samples_that_are_believed_alike_are_drawn_alike():
    weights = environment_weights(torch.full((10,), 0.7), torch.arange(10) // 5)
    torch.testing.assert_close(weights, torch.full((10,), 0.2, dtype=torch.float64))


def test_the_exponent_is_kept_between_one_and_ten():
    zeros = torch.zeros(10, dtype=torch.long)
    alike = torch.tensor([0.5] * 9 + [0.9])  # nine hardest of ten: no power makes a fifth of them stand out
    weights = environment_weights(alike, zeros)
    assert float(weights[0]) == pytest.approx(1 / 9, rel=1e-3)
    apart = torch.tensor([0.9] * 8 + [0.1, 0.5])  # far apart already: the plain scores
    weights = environment_weights(apart, zeros)
    assert float(weights[9] / weights[8]) == pytest.approx(0.5, rel=1e-3)


def test_milestones_are_shares_of_the_training():
    method = make()
    assert [method.centre_weight(e) for e in (0, 59, 60, 79, 80, 99)] == [0.0, 0.0, 0.001, 0.001, 0.005, 0.005]
    short = IFL(Setup(3, 5, COUNTS, epochs=10, num_samples=21), milestones=[0.5], centre_weights=[0.1, 0.2])
    assert [short.centre_weight(e) for e in (4, 5)] == [0.1, 0.2]


def test_the_second_environment_is_uniform_until_a_milestone_and_made_anew_at_each():
    method, network = make(), make_network().train()
    network.encoder[2].eval()
    modes = [module.training for module in network.modules()]
    for epoch in (0, 59):
        method.on_epoch_start(context_of(network, epoch))
        assert torch.equal(method.sampling_weights(), torch.ones(21, dtype=torch.float64))
    seen = []
    for epoch in (60, 80):
        method.on_epoch_start(context_of(network, epoch))
        assert [module.training for module in network.modules()] == modes
        network.eval()
        with torch.no_grad():
            own = network(INPUTS).logits.double().softmax(1)[torch.arange(21), TARGETS]
            network.head.weight.mul_(-1)
        for module, training in zip(network.modules(), modes, strict=True):
            module.training = training
        expected = naive_weights(own.tolist(), TARGETS.tolist(), 4.0, True)
        torch.testing.assert_close(method.sampling_weights(), torch.tensor(expected, dtype=torch.float64))
        seen.append(method.sampling_weights())
        method.on_epoch_start(context_of(network, epoch + 1))
        assert torch.equal(method.sampling_weights(), seen[-1])
    assert not torch.allclose(seen[0], seen[1])
    assert method.epoch_figures()["second_environment_share"] < 1


def make_batch():
    features = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    head = nn.Linear(5, 3).double()
    rows = torch.tensor([0, 1, 2, 3, 12, 13, 14, 18, 19])
    return Output(features, head(features)), Batch(INPUTS[rows], TARGETS[rows], None, rows), head


def loss_of(method, output, batch, head, epoch):
    network = FeatureClassifier(nn.Identity(), head)
    return method.loss(output, batch, context_of(network, epoch))


def test_without_centre_weight_it_is_logit_adjustment_bit_for_bit():
    output, batch, head = make_batch()
    method = make()
    plain = LogitAdjustmentLoss(3, 5, COUNTS)(output.features, batch.targets, head, logits=output.logits)
    assert torch.equal(loss_of(method, output, batch, head, 59), plain)
    assert not method.centres.any(), "centres stand still while nothing is drawn to them"
    entropy = loss_of(make(loss="cross_entropy"), output, batch, head, 59)
    assert torch.equal(entropy, F.cross_entropy(output.logits, batch.targets))


@pytest.mark.parametrize(("epoch", "weight"), [(60, 0.001), (80, 0.005)])
def test_from_a_milestone_on_the_distances_to_the_centres_are_added(epoch, weight):
    output, batch, head = make_batch()
    method = make()
    method.centres = torch.randn(3, 5, dtype=torch.float64)
    centres = method.centres.clone()
    added = loss_of(method, output, batch, head, epoch) - loss_of(make(), output, batch, head, 0)
    total = 0.0
    for row, target in zip(output.features.tolist(), batch.targets.tolist(), strict=True):
        total += sum((h - c) ** 2 for h, c in zip(row, centres[target].tolist(), strict=True))
    assert float(added.detach()) == pytest.approx(weight * total / 9, rel=1e-9)
    (slope,) = torch.autograd.grad(added, [output.features])
    torch.testing.assert_close(slope, (2 * weight / 9 * (output.features - centres[batch.targets])).detach())


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.8])
def test_centres_move_as_sgd_on_the_mean_distance_would_move_them(rate):
    method = make(centre_rate=rate)
    centres = nn.Parameter(torch.zeros(3, 5, dtype=torch.float64))
    optimizer = torch.optim.SGD([centres], lr=rate)
    for _ in range(4):
        output, batch, head = make_batch()
        loss_of(method, output, batch, head, 60)
        optimizer.zero_grad()
        (output.features.detach() - centres[batch.targets]).square().sum(1).mean().backward()
        optimizer.step()
        torch.testing.assert_close(method.centres, centres.detach())


def test_a_step_learns_from_both_environments_and_answers_for_the_first():
    network = make_network().eval()
    first = Batch(INPUTS[:4], TARGETS[:4], None, torch.arange(4))
    second = Batch(INPUTS[11:16], TARGETS[11:16], None, torch.arange(11, 16))
    method = make()
    result = method.step(first, context_of(network, 60, second))
    output = network(torch.cat([first.inputs, second.inputs]))
    targets = torch.cat([first.targets, second.targets])
    expected = LogitAdjustmentLoss(3, 5, COUNTS)(output.features, targets, network.head)
    distance = output.features.square().sum(1).mean()
    torch.testing.assert_close(result.loss, (expected + 0.001 * distance).detach())
    torch.testing.assert_close(result.logits, output.logits[:4].detach())
    assert result.extra["centre_distance"] == pytest.approx(float(distance.detach()), rel=1e-5)
    assert make().step(first, context_of(network, 0, second)).extra == {}


def test_texts_of_different_lengths_are_joined_under_one_mask():
    def batch(count, length):
        ids = torch.full((count, length), 7)
        return Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.arange(count), None, ids[:, 0])

    for lengths in ((2, 5), (5, 2), (3, 3)):
        both = join_batches(batch(2, lengths[0]), batch(3, lengths[1]))
        assert both.inputs["input_ids"].shape == (5, max(lengths))
        assert both.inputs["attention_mask"].sum(1).tolist() == [lengths[0]] * 2 + [lengths[1]] * 3
        assert torch.equal(both.inputs["input_ids"], 7 * both.inputs["attention_mask"])
        assert both.targets.tolist() == [0, 1, 0, 1, 2]
