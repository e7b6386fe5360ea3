import math

import pytest
import torch
from torch import nn

from icda.losses import CrossEntropyLoss
from icda.losses.large_margin_softmax import LargeMarginSoftmaxLoss, margin_of_angle


def make_batch(seed=0, classes=4, bias=True):
    torch.manual_seed(seed)
    head = nn.Linear(3, classes, bias=bias).double()
    return torch.randn(12, 3, dtype=torch.float64).requires_grad_(), torch.arange(12) % classes, head


def oracle_psi(angle, margin):
    k = min(int(angle * margin / math.pi), margin - 1)
    return (-1) ** k * math.cos(margin * angle) - 2 * k


def oracle_loss(features, targets, head, margin, blend):
    total = 0.0
    for h, y in zip(features.tolist(), targets.tolist(), strict=True):
        logits = []
        for c in range(len(head.weight)):
            w, b = head.weight[c].tolist(), 0.0 if head.bias is None else float(head.bias[c])
            product = sum(a * b for a, b in zip(w, h, strict=True))
            if c == y:
                length = math.hypot(*w) * math.hypot(*h)
                cosine = product / length
                product = length * (blend * cosine + oracle_psi(math.acos(cosine), margin)) / (1 + blend)
            logits.append(product + b)
        total += math.log(sum(math.exp(z) for z in logits)) - logits[y]
    return total / len(targets)


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
@pytest.mark.parametrize("blend", [0.0, 0.5, 1000.0])
@pytest.mark.parametrize(("classes", "bias"), [(4, True), (4, False), (2, True)])
def test_it_is_the_cross_entropy_with_psi_at_the_target(margin, blend, classes, bias):
    features, targets, head = make_batch(margin, classes, bias)
    loss = LargeMarginSoftmaxLoss(classes, 3, margin=margin, base=blend, gamma=0.0)
    value = loss(features, targets, head)
    assert float(value) == pytest.approx(oracle_loss(features, targets, head, margin, blend), abs=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_margin_one_is_cross_entropy(bias):
    features, targets, head = make_batch(bias=bias)
    value = LargeMarginSoftmaxLoss(4, 3, margin=1, base=0.0)(features, targets, head)
    assert torch.equal(value, CrossEntropyLoss(4, 3)(features, targets, head))


@pytest.mark.parametrize("margin", [2, 3, 4])
def test_psi_equals_its_definition_by_angles_is_continuous_and_falls(margin):
    angles = torch.linspace(0, math.pi, 1001, dtype=torch.float64)
    psi = margin_of_angle(angles.cos(), margin)
    expected = torch.tensor([oracle_psi(angle, margin) for angle in angles.tolist()], dtype=torch.float64)
    torch.testing.assert_close(psi, expected, rtol=0, atol=1e-12)
    assert (psi.diff() <= 1e-12).all()
    assert psi.diff().abs().max() < 0.02
    assert (psi <= angles.cos() + 1e-12).all(), "the margin only ever makes it harder"


@pytest.mark.parametrize("margin", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_features_aligned_features_and_zero_weights_have_finite_values_and_gradients(margin, dtype):
    head = nn.Linear(3, 3, bias=False, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))
    rows = [[0.0, 0.0, 0.0], [2.0, 4.0, 6.0], [-1.0, -2.0, -3.0], [1.0, 1.0, 1.0], [1e-30, 0.0, 0.0]]
    features = torch.tensor(rows, dtype=dtype, requires_grad=True)
    loss = LargeMarginSoftmaxLoss(3, 3, margin=margin, base=0.0)
    value = loss(features, torch.tensor([0, 0, 0, 1, 2]), head)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(head.weight.grad).all()


def test_the_blend_falls_with_training_steps_alone_and_never_below_its_floor():
    features, targets, head = make_batch()
    loss = LargeMarginSoftmaxLoss(4, 3, base=10.0, gamma=0.5, power=2.0, lambda_min=2.0)
    found = [loss.blend]
    for _ in range(4):
        loss(features, targets, head)
        found.append(loss.blend)
    assert found == pytest.approx([max(10 * (1 + 0.5 * t) ** -2, 2.0) for t in range(5)])
    loss.eval()(features, targets, head)
    loss.adjustment(features, targets, head)
    assert int(loss.steps) == 4


def test_the_defaults_are_those_of_the_reference():
    loss = LargeMarginSoftmaxLoss(4, 3)
    assert (loss.margin, loss.blend) == (2, 1000)
    loss.steps.fill_(10_000)
    assert loss.blend == pytest.approx(1000 * 1.2**-45)


def test_the_adjustment_is_a_margin_and_zero_at_the_target():
    features, targets, head = make_batch()
    phi = LargeMarginSoftmaxLoss(4, 3, base=0.0).adjustment(features, targets, head)
    assert (phi.gather(1, targets[:, None]) == 0).all()
    assert (phi >= 0).all()
    assert (phi > 0).any()
