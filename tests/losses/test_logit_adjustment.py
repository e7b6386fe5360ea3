import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda import LogitAdjustmentLoss

COUNTS = [500, 40, 3]


@pytest.mark.parametrize("tau", [1.0, 0.5, 2.0])
def test_it_is_the_cross_entropy_of_logits_plus_tau_log_prior(tau):
    head, features, targets = nn.Linear(5, 3).double(), torch.randn(8, 5, dtype=torch.float64), torch.arange(8) % 3
    prior = [count / sum(COUNTS) for count in COUNTS]
    adjusted = head(features) + torch.tensor([tau * math.log(p) for p in prior], dtype=torch.float64)
    value = LogitAdjustmentLoss(3, 5, torch.tensor(COUNTS), tau=tau)(features, targets, head)
    torch.testing.assert_close(value, F.cross_entropy(adjusted, targets), rtol=0, atol=1e-12)


@pytest.mark.parametrize("counts", [COUNTS, [500, 40, 0]])
def test_tau_zero_is_cross_entropy(counts):
    head, features, targets = nn.Linear(5, 3).double(), torch.randn(8, 5, dtype=torch.float64), torch.arange(8) % 2
    value = LogitAdjustmentLoss(3, 5, torch.tensor(counts), tau=0.0)(features, targets, head)
    torch.testing.assert_close(value, F.cross_entropy(head(features), targets), rtol=0, atol=1e-13)


def test_a_class_with_count_zero_contributes_nothing():
    head, features, targets = nn.Linear(5, 3).double(), torch.randn(8, 5, dtype=torch.float64), torch.arange(8) % 2
    value = LogitAdjustmentLoss(3, 5, torch.tensor([8, 2, 0]))(features, targets, head)
    without = LogitAdjustmentLoss(2, 5, torch.tensor([8, 2]))
    expected = without(features, targets, (head.weight[:2], head.bias[:2]))
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-13)


def test_missing_class_counts_are_asked_for():
    loss, head, features = LogitAdjustmentLoss(3, 5), nn.Linear(5, 3), torch.randn(2, 5)
    with pytest.raises(ValueError, match="LogitAdjustmentLoss needs class_counts"):
        loss(features, torch.tensor([0, 1]), head)
    with pytest.raises(ValueError, match="LogitAdjustmentLoss needs class_counts"):
        loss.adjustment(features, torch.tensor([0, 1]), head)
