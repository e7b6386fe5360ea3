import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.losses.class_balanced_cross_entropy import ClassBalancedCrossEntropyLoss
from icda.losses.class_balanced_focal import ClassBalancedFocalLoss, sigmoid_focal
from icda.losses.focal import FocalLoss
from support import head_batch

COUNTS = [500, 40, 3]


def oracle(logits, targets, counts, beta, gamma):
    """One class against the rest, summed over classes, weighted by the target's class."""
    raw = [(1 - beta) / (1 - beta**n) if n else 0.0 for n in counts]
    weights = [value * len(counts) / sum(raw) for value in raw]
    values = []
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        total = 0.0
        for c, z in enumerate(row):
            p = 1 / (1 + math.exp(-z))
            right = p if c == y else 1 - p
            total += (1 - right) ** gamma * -math.log(right)
        values.append(weights[y] * total)
    return values


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("counts", [COUNTS, [7, 2], [50, 20, 9] + [1] * 96 + [0]], ids=["3", "2", "100, one absent"])
def test_the_sigmoid_form_is_the_formula_computed_in_loops(gamma, counts):
    features, targets, head = head_batch(len(counts))
    targets = targets % len(counts)
    expected = torch.tensor(oracle(head(features), targets, counts, 0.999, gamma), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        loss = ClassBalancedFocalLoss(
            len(counts), 5, torch.tensor(counts), effective_beta=0.999, gamma=gamma, reduction=reduction
        )
        torch.testing.assert_close(loss(features, targets, head), wanted, rtol=1e-9, atol=1e-12)


def test_the_softmax_form_is_the_focal_loss_times_the_class_weight():
    features, targets, head = head_batch()
    loss = ClassBalancedFocalLoss(3, 5, torch.tensor(COUNTS), form="softmax", gamma=1.5, reduction="none")
    plain = FocalLoss(3, 5, gamma=1.5, reduction="none")(features, targets, head)
    torch.testing.assert_close(loss(features, targets, head), loss.class_weights[targets] * plain, rtol=0, atol=1e-13)


def test_without_focus_the_forms_are_weighted_cross_entropies():
    features, targets, head = head_batch()
    counts = torch.tensor(COUNTS)
    softmax = ClassBalancedFocalLoss(3, 5, counts, gamma=0.0, form="softmax")(features, targets, head)
    expected = ClassBalancedCrossEntropyLoss(3, 5, counts)(features, targets, head)
    torch.testing.assert_close(softmax, expected, rtol=0, atol=1e-13)
    sigmoid = ClassBalancedFocalLoss(3, 5, counts, gamma=0.0, effective_beta=0.0)(features, targets, head)
    one_hot = F.one_hot(targets, 3).double()
    binary = F.binary_cross_entropy_with_logits(head(features), one_hot, reduction="none").sum(1).mean()
    torch.testing.assert_close(sigmoid, binary, rtol=0, atol=1e-13)


@pytest.mark.parametrize("value", [1000.0, -1000.0])
def test_huge_logits_have_finite_losses_and_gradients(value):
    logits = torch.full((1, 3), value).requires_grad_()
    loss = sigmoid_focal(logits, torch.tensor([0]), 0.5).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_the_head_of_the_sigmoid_form_starts_with_every_class_at_chance():
    heads = {form: nn.Linear(5, 10) for form in ("sigmoid", "softmax")}
    for form, head in heads.items():
        before = head.weight.clone(), head.bias.clone()
        loss = ClassBalancedFocalLoss(10, 5, torch.ones(10), form=form)
        assert loss.prepare_head(head) is head
        assert torch.equal(head.weight, before[0])
        assert torch.equal(head.bias, before[1]) == (form == "softmax")
    torch.testing.assert_close(heads["sigmoid"].bias.sigmoid(), torch.full((10,), 0.1))
    bare = nn.Linear(5, 10, bias=False)
    assert ClassBalancedFocalLoss(10, 5, torch.ones(10)).prepare_head(bare) is bare
