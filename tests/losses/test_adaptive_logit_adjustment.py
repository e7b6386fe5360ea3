import math

import pytest
import torch
from torch import nn

from icda.losses.adaptive_logit_adjustment import AdaptiveLogitAdjustmentLoss
from icda.losses.cosine import cosines
from support import head_batch

COUNTS = [500, 40, 3]


def oracle(features, weight, targets, counts, s):
    fewest = min(n for n in counts if n)
    values = []
    for h, y in zip(features.tolist(), targets.tolist(), strict=True):
        logits = []
        for w in weight.tolist():
            logits.append(s * sum(a * b for a, b in zip(h, w, strict=True)) / math.hypot(*h) / math.hypot(*w))
        hard = (1 - logits[y] / s) / 2
        rare = math.log(2) / math.log(counts[y] / fewest + 1)
        logits[y] -= s * hard * rare
        values.append(math.log(sum(math.exp(z) for z in logits)) - logits[y])
    return values


@pytest.mark.parametrize("scale", [30.0, 10.0])
@pytest.mark.parametrize("counts", [COUNTS, [7, 2], [50, 20, 9] + [1] * 96 + [0]], ids=["3", "2", "100, one absent"])
def test_it_is_the_formula_computed_in_loops(scale, counts):
    features, targets, head = head_batch(len(counts))
    targets = targets % len(counts)
    expected = torch.tensor(oracle(features, head.weight, targets, counts, scale), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        loss = AdaptiveLogitAdjustmentLoss(len(counts), 5, torch.tensor(counts), scale=scale, reduction=reduction)
        torch.testing.assert_close(loss(features, targets, head), wanted, rtol=1e-10, atol=1e-11)


def test_with_equal_counts_only_the_difficulty_makes_a_margin():
    features, targets, head = head_batch()
    loss = AdaptiveLogitAdjustmentLoss(3, 5, torch.full((3,), 12))
    assert torch.equal(loss.rarity, torch.ones(3, dtype=torch.float64))
    own = cosines(features, head.weight).gather(1, targets[:, None]).squeeze(1)
    phi = loss.adjustment(features, targets, head)
    for i, y in enumerate(targets.tolist()):
        expected = [0.0 if c == y else 15 * (1 - own[i].item()) for c in range(3)]
        assert phi[i].tolist() == pytest.approx(expected)


def test_a_sample_at_its_class_weight_has_no_margin_and_one_opposite_the_largest():
    weight = torch.eye(2, dtype=torch.float64)
    loss = AdaptiveLogitAdjustmentLoss(2, 2, torch.tensor([9, 9]))
    phi = loss.adjustment(torch.tensor([[2.0, 0.0], [-1.0, 0.0]]).double(), torch.tensor([0, 0]), (weight, None))
    assert phi.tolist() == [[0, 0], [0, 30]]


def test_the_margin_is_a_constant_to_the_gradient():
    features, targets, head = head_batch()
    loss = AdaptiveLogitAdjustmentLoss(3, 5, torch.tensor(COUNTS))
    phi = loss.adjustment(features, targets, head)
    assert not phi.requires_grad
    adjusted = 30 * cosines(features, head.weight) + phi
    expected = torch.autograd.grad(nn.functional.cross_entropy(adjusted, targets), [features, head.weight])
    found = torch.autograd.grad(loss(features, targets, head), [features, head.weight])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
