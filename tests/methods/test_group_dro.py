"""Upweighting and group DRO: every group alike, or the worst first."""

import math

import pytest
import torch
from torch.nn import functional as F

from icda.data.loader import balanced_weights
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.group_dro import GroupDRO
from icda.methods.uw import Upweighting
from icda.models.base import Output
from support import make_context

GROUPS = torch.tensor([0] * 9 + [1] * 2 + [3] * 4)  # group 2 has no training sample
TARGETS = torch.tensor([0, 1, 2] * 5)
UW_SETUP = Setup(3, 4, torch.tensor([5, 5, 5]), epochs=2, num_samples=15, group_counts=torch.tensor([9, 2, 0, 4]))
CONTEXT = make_context()


def whole_set():
    logits = torch.randn(15, 3, dtype=torch.float64, requires_grad=True)
    return Output(torch.zeros(15, 4), logits), Batch(torch.zeros(15, 4), TARGETS, GROUPS, torch.arange(15))


def mean_over_groups(logits):
    total = torch.zeros((), dtype=torch.float64)
    for group in (0, 1, 3):
        rows = [i for i in range(15) if int(GROUPS[i]) == group]
        for i in rows:
            total = total - logits[i].log_softmax(0)[TARGETS[i]] / len(rows)
    return total / 3


def test_weights_on_the_loss_make_it_the_mean_over_groups_of_their_mean_losses():
    output, batch = whole_set()
    method = Upweighting(UW_SETUP, weighting="loss")
    # Weights are kept in float32.
    torch.testing.assert_close(method.loss(output, batch, CONTEXT), mean_over_groups(output.logits), rtol=0, atol=1e-6)


def test_sampling_has_the_expected_gradient_of_the_weights_on_the_loss():
    output, batch = whole_set()
    drawn = balanced_weights(GROUPS)
    expected = torch.zeros(15, 3, dtype=torch.float64)
    method = Upweighting(UW_SETUP)
    for i in range(15):
        one = Output(output.features[[i]], output.logits[[i]])
        value = method.loss(one, Batch(batch.inputs[[i]], TARGETS[[i]], GROUPS[[i]], torch.tensor([i])), CONTEXT)
        (slope,) = torch.autograd.grad(value, [output.logits])
        expected += drawn[i] / drawn.sum() * slope
    weighted = Upweighting(UW_SETUP, weighting="loss").loss(output, batch, CONTEXT)
    (found,) = torch.autograd.grad(weighted, [output.logits])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_with_groups_of_equal_size_weights_on_the_loss_are_cross_entropy():
    output, batch = whole_set()
    even = Setup(3, 4, torch.ones(3), epochs=2, num_samples=20, group_counts=torch.tensor([5, 5, 5, 5]))
    assert torch.equal(
        Upweighting(even, weighting="loss").loss(output, batch, CONTEXT), F.cross_entropy(output.logits, TARGETS)
    )


def test_a_group_without_samples_changes_nothing():
    present = Setup(3, 4, torch.ones(3), epochs=2, num_samples=15, group_counts=torch.tensor([9, 2, 4]))
    without = Upweighting(present, weighting="loss").group_weights
    found = Upweighting(UW_SETUP, weighting="loss").group_weights
    assert torch.equal(found[[0, 1, 3]], without)
    assert found[2] == 0
    assert float(found[GROUPS].mean()) == pytest.approx(1)


COUNTS = [40, 10, 4, 26]
SETUP = Setup(3, 4, torch.tensor([30, 30, 20]), epochs=2, num_samples=80, group_counts=torch.tensor(COUNTS))
STEPS = ([0, 1, 2, 3, 0, 1], [0, 0, 3, 0, 3, 3], [2, 2, 2, 2, 1, 0], [1, 1, 1, 1, 1, 1])  # most lack a group


def batch_of(groups, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(len(groups), 3, dtype=torch.float64, generator=generator)
    targets = torch.randint(3, (len(groups),), generator=generator)
    inputs = torch.zeros(len(groups), 4)
    return Output(inputs, logits.requires_grad_()), Batch(inputs, targets, torch.tensor(groups), torch.arange(6))


def group_losses(logits, targets, groups):
    losses = {}
    for row, target, group in zip(logits, targets.tolist(), groups, strict=True):
        losses.setdefault(group, []).append(-row.log_softmax(0)[target])
    return {group: sum(values[1:], values[0]) / len(values) for group, values in losses.items()}


@pytest.mark.parametrize("eta", [0.01, 0.5])
@pytest.mark.parametrize("adjustment", [0.0, 2.0])
def test_weights_loss_and_gradient_follow_the_formula_step_by_step(eta, adjustment):
    method = GroupDRO(SETUP, eta=eta, adjustment=adjustment).double()
    q = [0.25] * 4
    for number, groups in enumerate(STEPS):
        output, batch = batch_of(groups, number)
        losses = group_losses(output.logits, batch.targets, groups)
        for group, loss in losses.items():
            q[group] *= math.exp(eta * (loss.item() + adjustment / math.sqrt(COUNTS[group])))
        q = [value / sum(q) for value in q]
        expected = sum((q[group] * loss for group, loss in losses.items()), torch.zeros((), dtype=torch.float64))
        found = method.loss(output, batch, CONTEXT)
        atol = 1e-12 if adjustment == 0 else 1e-7  # the adjustments were made in float32
        torch.testing.assert_close(method.q, torch.tensor(q, dtype=torch.float64), rtol=0, atol=atol)
        assert not method.q.requires_grad
        assert method.epoch_figures() == {"weight_by_group": method.q.tolist()}
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)
        slopes = [torch.autograd.grad(value, [output.logits])[0] for value in (found, expected)]
        torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=atol)


def test_without_a_step_size_it_is_the_mean_over_groups():
    output, batch = batch_of([0, 1, 2, 3, 0, 1])
    method = GroupDRO(SETUP, eta=0.0).double()
    losses = group_losses(output.logits, batch.targets, [0, 1, 2, 3, 0, 1])
    expected = sum(losses.values(), torch.zeros((), dtype=torch.float64)) / 4
    torch.testing.assert_close(method.loss(output, batch, CONTEXT), expected, rtol=0, atol=1e-12)
    assert method.q.tolist() == pytest.approx([0.25] * 4)


def test_with_one_group_it_is_cross_entropy():
    output, batch = batch_of([0] * 6)
    setup = Setup(3, 4, torch.ones(3), epochs=2, num_samples=80, group_counts=torch.tensor([80]))
    found = GroupDRO(setup, eta=0.3).double().loss(output, batch, CONTEXT)
    torch.testing.assert_close(found, F.cross_entropy(output.logits, batch.targets), rtol=0, atol=1e-12)


def test_a_large_step_size_leaves_the_worst_group_alone_and_nothing_overflows():
    output, batch = batch_of([0, 1, 2, 3, 0, 1])
    losses = group_losses(output.logits, batch.targets, [0, 1, 2, 3, 0, 1])
    worst = max(losses, key=lambda group: losses[group].item())
    method = GroupDRO(SETUP, eta=1e4)
    found = method.loss(output, batch, CONTEXT)
    assert method.q.tolist() == [float(group == worst) for group in range(4)]
    assert found.item() == pytest.approx(losses[worst].item())


def test_a_group_without_training_samples_gets_no_weight():
    counts = torch.tensor([40, 10, 0, 30])
    method = GroupDRO(Setup(3, 4, torch.ones(3), epochs=2, num_samples=80, group_counts=counts), adjustment=1.0)
    assert method.q.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    output, batch = batch_of([0, 1, 3, 3, 1, 0])
    assert torch.isfinite(method.loss(output, batch, CONTEXT))
    assert float(method.q[2]) == 0
    assert float(method.q.sum()) == pytest.approx(1)
