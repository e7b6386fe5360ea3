import math

import pytest
import torch

from icda.losses import CrossEntropyLoss
from icda.losses.generalized_cross_entropy import GeneralizedCrossEntropyLoss, generalized_cross_entropy
from support import head_batch


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_one_minus_the_power_of_the_probability(q, classes):
    features, targets, head = head_batch(classes, width=3)
    total = 0.0
    for z, y in zip(head(features).tolist(), targets.tolist(), strict=True):
        probability = math.exp(z[y]) / sum(math.exp(value) for value in z)
        total += (1 - probability**q) / q
    value = GeneralizedCrossEntropyLoss(classes, 3, q=q)(features, targets, head)
    assert float(value) == pytest.approx(total / 9, abs=1e-13)


def test_q_zero_is_cross_entropy_and_a_small_q_close_to_it():
    features, targets, head = head_batch(4, width=3)
    expected = CrossEntropyLoss(4, 3)(features, targets, head)
    assert torch.equal(GeneralizedCrossEntropyLoss(4, 3, q=0.0)(features, targets, head), expected)
    for q in (1e-3, 1e-6, 1e-12):
        found = GeneralizedCrossEntropyLoss(4, 3, q=q)(features, targets, head)
        assert float((found - expected).abs()) < 10 * q + 1e-14, "no cancellation"


def test_q_one_is_half_of_the_mean_absolute_error():
    features, targets, head = head_batch(4, width=3)
    probabilities, onehot = head(features).softmax(1), torch.eye(4, dtype=torch.float64)[targets]
    expected = (probabilities - onehot).abs().sum(1).mean() / 2
    torch.testing.assert_close(GeneralizedCrossEntropyLoss(4, 3, q=1.0)(features, targets, head), expected)


def test_a_sample_that_cannot_be_believed_has_a_finite_loss_and_next_to_no_gradient():
    logits = torch.tensor([[0.0, 400.0]], requires_grad=True)
    value = generalized_cross_entropy(logits, torch.tensor([0]), q=0.7)
    value.sum().backward()
    assert float(value) == pytest.approx(1 / 0.7)
    assert float(logits.grad.abs().max()) == 0
    plain = torch.tensor([[0.0, 400.0]], requires_grad=True)
    generalized_cross_entropy(plain, torch.tensor([0]), q=0.0).sum().backward()
    assert plain.grad.tolist() == [[-1, 1]]
