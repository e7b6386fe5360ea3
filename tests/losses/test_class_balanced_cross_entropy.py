import math

import pytest
import torch
from torch import Tensor, nn

from icda import CrossEntropyLoss
from icda.losses import LOSSES
from icda.losses.class_balanced_cross_entropy import ClassBalancedCrossEntropyLoss

COUNTS = [500, 40, 3]


def make_batch(num_classes: int = 3) -> tuple[Tensor, Tensor, nn.Linear]:
    features = torch.randn(9, 5, dtype=torch.float64).requires_grad_()
    return features, torch.arange(9) % min(num_classes, 3), nn.Linear(5, num_classes).double()


def oracle(logits: Tensor, targets: Tensor, counts: list[int], beta: float) -> list[float]:
    raw = [(1 - beta) / (1 - beta**n) if n else 0.0 for n in counts]
    weights = [value * len(counts) / sum(raw) for value in raw]
    values = []
    for row, y in zip(logits.tolist(), targets.tolist(), strict=True):
        values.append(weights[y] * (math.log(sum(math.exp(value) for value in row)) - row[y]))
    return values


@pytest.mark.parametrize("beta", [0.9, 0.999, 0.9999])
@pytest.mark.parametrize("counts", [COUNTS, [7, 2], [50, 20, 9] + [1] * 96 + [0]], ids=["3", "2", "100, one absent"])
def test_it_is_the_formula_computed_in_loops(beta: float, counts: list[int]) -> None:
    features, targets, head = make_batch(len(counts))
    targets = targets % len(counts)
    expected = torch.tensor(oracle(head(features), targets, counts, beta), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        loss = ClassBalancedCrossEntropyLoss(
            len(counts), 5, torch.tensor(counts), effective_beta=beta, reduction=reduction
        )
        torch.testing.assert_close(loss(features, targets, head), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("counts", "beta"), [(COUNTS, 0.0), ([7, 7, 7], 0.9999)], ids=["beta 0", "balanced"])
def test_no_rebalancing_is_cross_entropy(counts: list[int], beta: float) -> None:
    features, targets, head = make_batch()
    value = ClassBalancedCrossEntropyLoss(3, 5, torch.tensor(counts), effective_beta=beta)(features, targets, head)
    torch.testing.assert_close(value, CrossEntropyLoss(3, 5)(features, targets, head), rtol=0, atol=1e-13)


def test_gradients_are_right_and_larger_for_rare_classes() -> None:
    features, targets, head = make_batch()
    loss = ClassBalancedCrossEntropyLoss(3, 5, torch.tensor(COUNTS), reduction="none")
    assert torch.autograd.gradcheck(lambda h, w: loss(h, targets, (w, None)), (features, head.weight))
    assert loss.class_weights.tolist() == sorted(loss.class_weights.tolist())


def test_half_precision_keeps_the_weights() -> None:
    features, targets, head = make_batch()
    loss = ClassBalancedCrossEntropyLoss(3, 5, torch.tensor([70_001, 4_099, 3]))
    expected = loss.class_weights.clone()
    assert torch.equal(loss.half().class_weights, expected)
    assert loss(features.half(), targets, head.half()).dtype == torch.float32


def test_counts_come_back_with_the_state() -> None:
    loss, other = (ClassBalancedCrossEntropyLoss(3, 5, torch.tensor(counts)) for counts in (COUNTS, [1, 1, 1]))
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.class_weights, loss.class_weights)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="ClassBalancedCrossEntropyLoss needs class_counts"):
        ClassBalancedCrossEntropyLoss(3, 5)
    for beta in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="effective_beta"):
            ClassBalancedCrossEntropyLoss(3, 5, torch.tensor(COUNTS), effective_beta=beta)
    features, targets, head = make_batch()
    with pytest.raises(ValueError, match="class 2"):
        ClassBalancedCrossEntropyLoss(3, 5, torch.tensor([5, 5, 0]))(features, targets, head)


def test_its_short_name_finds_it() -> None:
    assert LOSSES.get("cb-ce") is ClassBalancedCrossEntropyLoss
