import torch
from torch import nn
from torch.nn import functional as F

from icda import CrossEntropyLoss


def test_it_is_cross_entropy_and_adjusts_nothing() -> None:
    head, features = nn.Linear(5, 3), torch.randn(8, 5, requires_grad=True)
    targets = torch.arange(8) % 3
    loss = CrossEntropyLoss(3, 5)
    value, expected = loss(features, targets, head, progress=0.3), F.cross_entropy(head(features), targets)
    assert torch.equal(value, expected)
    leaves = [features, head.weight, head.bias]
    for found, wanted in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(loss.adjustment(features, targets, head), torch.zeros(8, 3))


def test_class_counts_change_nothing() -> None:
    head, features, targets = nn.Linear(5, 3), torch.randn(8, 5), torch.arange(8) % 3
    counted = CrossEntropyLoss(3, 5, class_counts=torch.tensor([9, 1, 0]))
    assert torch.equal(counted(features, targets, head), CrossEntropyLoss(3, 5)(features, targets, head))
