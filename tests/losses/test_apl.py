"""The active passive loss: its two parts against naive sums, their bounds and what noise does to them."""

import math

import pytest
import torch
from torch import nn

from icda.losses.apl import ActivePassiveLoss, normalised_cross_entropy, reverse_cross_entropy


def probabilities(row):
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def naive_nce(row, target):
    p = probabilities(row)
    return math.log(p[target]) / sum(math.log(value) for value in p)


def naive_rce(row, target):
    label = [1.0 if c == target else 1e-4 for c in range(len(row))]
    return -sum(p * math.log(q) for p, q in zip(probabilities(row), label, strict=True))


@pytest.fixture
def logits():
    return 3 * torch.randn(9, 4, dtype=torch.float64)


def test_both_parts_are_their_sums_over_classes(logits):
    targets = torch.arange(9) % 4
    pairs = list(zip(logits.tolist(), targets.tolist(), strict=True))
    active, passive = normalised_cross_entropy(logits, targets), reverse_cross_entropy(logits, targets)
    assert active.tolist() == pytest.approx([naive_nce(*pair) for pair in pairs], rel=1e-12)
    assert passive.tolist() == pytest.approx([naive_rce(*pair) for pair in pairs], rel=1e-12)


def test_over_all_labels_each_part_sums_to_a_constant(logits):
    every = [torch.full((9,), c) for c in range(4)]
    active = torch.stack([normalised_cross_entropy(logits, targets) for targets in every])
    passive = torch.stack([reverse_cross_entropy(logits, targets) for targets in every])
    torch.testing.assert_close(active.sum(0), torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(passive.sum(0), torch.full((9,), -3 * math.log(1e-4), dtype=torch.float64))


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0, 1e4])
def test_the_active_part_stays_in_zero_to_one_and_the_passive_below_its_cap(scale):
    logits, targets = scale * torch.randn(64, 5), torch.arange(64) % 5
    active, passive = normalised_cross_entropy(logits, targets), reverse_cross_entropy(logits, targets)
    assert ((active >= 0) & (active <= 1)).all()
    assert ((passive >= 0) & (passive <= -math.log(1e-4) + 1e-5)).all()


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (10.0, 0.1), (1.0, 0.0), (0.0, 2.0)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_weighs_and_reduces_them(a, b, reduction):
    head, features = nn.Linear(5, 3).double(), torch.randn(8, 5, dtype=torch.float64)
    targets = torch.arange(8) % 3
    rows = head(features).tolist()
    each = [a * naive_nce(rows[i], i % 3) + b * naive_rce(rows[i], i % 3) for i in range(8)]
    found = ActivePassiveLoss(3, 5, a=a, b=b, reduction=reduction)(features, targets, head)
    wanted = {"none": each, "mean": sum(each) / 8, "sum": sum(each)}[reduction]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_certain_answer_right_or_wrong_has_a_finite_loss_and_gradient(dtype):
    head = nn.Linear(2, 2, bias=False).to(dtype)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[200.0, -200.0], [-200.0, 200.0]]))
    features = torch.eye(2, dtype=dtype).requires_grad_()
    for targets in (torch.tensor([0, 1]), torch.tensor([1, 0])):
        loss = ActivePassiveLoss(2, 2)(features, targets, head)
        (gradient,) = torch.autograd.grad(loss, features)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()
