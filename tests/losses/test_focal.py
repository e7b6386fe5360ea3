import math

import pytest
import torch
from torch.nn import functional as F

from icda import CrossEntropyLoss
from icda.losses.focal import FocalLoss, softmax_focal
from support import head_batch


def oracle(logits, targets, gamma):
    values = []
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        p = math.exp(row[y]) / sum(math.exp(value) for value in row)
        values.append((1 - p) ** gamma * -math.log(p))
    return values


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.7])
@pytest.mark.parametrize("num_classes", [2, 4, 100])
def test_it_is_the_formula_computed_in_loops(gamma, num_classes):
    features, targets, head = head_batch(num_classes)
    expected = torch.tensor(oracle(head(features), targets, gamma), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        value = FocalLoss(num_classes, 5, gamma=gamma, reduction=reduction)(features, targets, head)
        torch.testing.assert_close(value, wanted, rtol=1e-12, atol=1e-14)


def test_gamma_zero_is_cross_entropy():
    features, targets, head = head_batch(4)
    value = FocalLoss(4, 5, gamma=0.0)(features, targets, head)
    assert torch.equal(value, CrossEntropyLoss(4, 5)(features, targets, head))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("gap", [40.0, 1000.0, -1000.0])
def test_sure_and_hopeless_samples_have_finite_gradients(gamma, gap):
    logits = torch.tensor([[gap, 0.0, 0.0]]).requires_grad_()
    value = softmax_focal(logits, torch.tensor([0]), gamma).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
    if gap < 0:  # a hopeless sample counts in full
        torch.testing.assert_close(value, F.cross_entropy(logits, torch.tensor([0])))
