"""Self-paced learning and MentorNet: whose losses count, and what the mentor learns."""

import copy
import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.mentornet import Mentor, MentorNet, spoil
from icda.methods.self_paced import SelfPaced, leave_out
from icda.models import create_model
from support import make_batch, make_context

SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=20, num_samples=20, seed=3)
BATCH = make_batch(1, size=10)


def naive_percentile(losses, share):
    ordered, place = sorted(losses), share * (len(losses) - 1)
    low = int(place)
    high = min(low + 1, len(losses) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("percentile", [0.25, 0.6, 0.75, 1.0])
def test_the_threshold_is_a_moving_average_of_the_percentile(percentile):
    method, wanted = SelfPaced(SETUP, percentile=percentile, moving_average=0.8), None
    for _ in range(4):
        losses = torch.rand(13, dtype=torch.float64)
        now = naive_percentile(losses.tolist(), percentile)
        wanted = now if wanted is None else 0.8 * wanted + 0.2 * now
        method.observe(losses)
        assert float(method.threshold) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_step_counts_the_samples_below_the_threshold(dropout, model):
    method, applied = SelfPaced(SETUP, percentile=0.6, dropout=dropout), []
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


def test_in_the_burn_in_every_sample_counts_but_those_left_out(model):
    result = SelfPaced(SETUP, percentile=0.1).step(BATCH, make_context(model, progress=0.16))
    assert result.extra["weight_mean"] == pytest.approx(0.5)
    whole = SelfPaced(SETUP, percentile=0.1, burn_in_dropout=0.0, burn_in=1.0)
    loss = whole.step(BATCH, make_context(model, progress=0.9)).loss
    torch.testing.assert_close(loss, F.cross_entropy(model(BATCH.inputs).logits, BATCH.targets).detach())


@pytest.mark.parametrize(("rate", "kept"), [(0.0, 10), (0.05, 9), (0.5, 5), (0.9, 1), (0.99, 1)])
def test_so_many_weights_stay(rate, kept):
    weights = torch.linspace(0.1, 1, 10)
    left = leave_out(weights, rate, torch.Generator().manual_seed(0))
    assert int((left > 0).sum()) == kept
    assert torch.equal(left[left > 0], weights[left > 0])


METADATA = make_batch(99, size=16)
context_of = partial(make_context, next_metadata=lambda: METADATA, progress=0.5, iteration=7)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def naive_mentor(mentor, loss, difference, epoch):
    """Gates of an LSTM of one unit at its first step: the cell is sigmoid(input gate) tanh(candidate)."""
    state = {name: value.tolist() for name, value in mentor.state_dict().items()}
    features = [*state["label.weight"][0], *state["epoch.weight"][epoch]]
    for end in ("", "_reverse"):
        weights, first, second = (state[f"sequence.{name}_l0{end}"] for name in ("weight_ih", "bias_ih", "bias_hh"))
        gates = [w[0] * loss + w[1] * difference + a + b for w, a, b in zip(weights, first, second, strict=True)]
        features.append(sigmoid(gates[0]) * math.tanh(gates[2]))
    hidden = [
        math.tanh(sum(w * x for w, x in zip(row, features, strict=True)) + bias)
        for row, bias in zip(state["hidden.weight"], state["hidden.bias"], strict=True)
    ]
    return sum(w * x for w, x in zip(state["output.weight"][0], hidden, strict=True)) + state["output.bias"][0]


@pytest.mark.parametrize("epoch", [0, 17, 99])
def test_the_mentor_is_a_cell_of_one_unit_each_way_embeddings_and_twenty_units(epoch):
    mentor = Mentor().double()
    losses, differences = torch.rand(6, dtype=torch.float64) * 5, torch.randn(6, dtype=torch.float64)
    pairs = zip(losses.tolist(), differences.tolist(), strict=True)
    wanted = [naive_mentor(mentor, *pair, epoch) for pair in pairs]
    assert mentor(losses, differences, epoch).tolist() == pytest.approx(wanted, rel=1e-10)
    assert mentor.hidden.out_features == 20


def test_the_embedding_of_the_epoch_is_not_learned():
    mentor = Mentor()
    mentor(torch.rand(3), torch.rand(3), 5).sum().backward()
    assert mentor.epoch.weight.grad is None
    assert all(value.grad is not None for name, value in mentor.named_parameters() if name != "epoch.weight")


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_wrong_labels_come_in_their_share_and_from_the_students_answers(rate):
    count = 20_000
    logits = torch.log(torch.tensor([0.6, 0.3, 0.1])).expand(count, -1)
    given, right = spoil(logits, torch.zeros(count, dtype=torch.long), rate, torch.Generator().manual_seed(0))
    assert torch.equal(right, given == 0)
    assert float((~right).float().mean()) == pytest.approx(rate, abs=0.015)
    assert float((given[~right] == 1).float().mean()) == pytest.approx(0.75, abs=0.03)


def test_one_lesson_is_an_adam_step_on_which_labels_were_left_alone(model):
    method = MentorNet(SETUP, noise_rate=0.4, mentor_rate=0.05).double()
    method.threshold.fill_(0.7)
    twin, context = copy.deepcopy(method.mentor), context_of(model)
    logits = model(METADATA.inputs).logits.detach()
    given, right = spoil(logits, METADATA.targets, 0.4, generator_for(3, "spoil", 7))
    assert 0 < int(right.sum()) < 16
    losses = F.cross_entropy(logits, given, reduction="none")
    answers = twin(losses, losses - 0.7, 17)
    chances = [sigmoid(value) for value in answers.tolist()]
    wanted = -sum(math.log(c if r else 1 - c) for c, r in zip(chances, right.tolist(), strict=True)) / 16
    learned = [value for value in twin.parameters() if value.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=0.05)
    F.binary_cross_entropy_with_logits(answers, right.double()).backward()
    optimizer.step()
    assert method.teach(context) == pytest.approx(wanted)
    for mine, other in zip(method.mentor.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_lesson_leaves_the_student_as_it_was():
    model = create_model("small_cnn", 4, (1, 8, 8))
    inputs = torch.randn(16, 1, 8, 8)
    metadata = Batch(inputs, torch.arange(16) % 4, None, torch.arange(16))
    before = copy.deepcopy(model.state_dict())
    assert any("running_mean" in name for name in before), "a student without BatchNorm would show nothing"
    method, context = MentorNet(SETUP), context_of(model)
    context.next_metadata = lambda: metadata
    method.threshold.fill_(1.0)
    method.teach(context)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_step_descends_the_loss_weighted_by_the_mentor(model):
    method, applied, data = MentorNet(SETUP, dropout=0.0).double(), [], make_batch(1, size=10)
    context = context_of(model, apply=applied.append)
    each = F.cross_entropy(model(data.inputs).logits, data.targets, reduction="none")
    method.threshold.fill_(float("nan"))
    result = method.step(data, context)  # no lesson yet: there is no percentile to compare with
    assert "mentor_loss" not in result.extra
    threshold = float(method.threshold)
    weights = [sigmoid(naive_mentor(method.mentor, loss, loss - threshold, 17)) for loss in each.tolist()]
    loss = (torch.tensor(weights, dtype=torch.float64) * each).mean()
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-8, atol=0)
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    for found, expected in zip(torch.autograd.grad(applied[0], list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10)
    assert "mentor_loss" in method.step(data, context).extra
