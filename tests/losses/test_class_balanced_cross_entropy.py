import math

import pytest
import torch

from icda import CrossEntropyLoss
from icda.losses.class_balanced_cross_entropy import ClassBalancedCrossEntropyLoss
from support import head_batch

COUNTS = [500, 40, 3]


def oracle(logits, targets, counts, beta):
    raw = [(1 - beta) / (1 - beta**n) if n else 0.0 for n in counts]
    weights = [value * len(counts) / sum(raw) for value in raw]
    values = []
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        values.append(weights[y] * (math.log(sum(math.exp(value) for value in row)) - row[y]))
    return values


@pytest.mark.parametrize("beta", [0.9, 0.999, 0.9999])
@pytest.mark.parametrize("counts", [COUNTS, [7, 2], [50, 20, 9] + [1] * 96 + [0]], ids=["3", "2", "100, one absent"])
def test_it_is_the_formula_computed_in_loops(beta, counts):
    features, targets, head = head_batch(len(counts))
    targets = targets % len(counts)
    expected = torch.tensor(oracle(head(features), targets, counts, beta), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        loss = ClassBalancedCrossEntropyLoss(
            len(counts), 5, torch.tensor(counts), effective_beta=beta, reduction=reduction
        )
        torch.testing.assert_close(loss(features, targets, head), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("counts", "beta"), [(COUNTS, 0.0), ([7, 7, 7], 0.9999)], ids=["beta 0", "balanced"])
def test_no_rebalancing_is_cross_entropy(counts, beta):
    features, targets, head = head_batch()
    value = ClassBalancedCrossEntropyLoss(3, 5, torch.tensor(counts), effective_beta=beta)(features, targets, head)
    torch.testing.assert_close(value, CrossEntropyLoss(3, 5)(features, targets, head), rtol=0, atol=1e-13)
