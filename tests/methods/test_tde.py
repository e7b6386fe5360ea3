import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.tde import DeConfoundTDE, MultiHeadNormalisedLinear
from icda.models.base import FeatureClassifier

TAU, GAMMA = 16.0, 1 / 32


def make(num_classes=3, **options):
    counts = torch.arange(1, num_classes + 1)
    setup = Setup(num_classes, feature_dim=6, class_counts=counts, epochs=2, num_samples=int(counts.sum()))
    method = DeConfoundTDE(setup, **options).double()
    model = FeatureClassifier(nn.Identity(), nn.Linear(6, num_classes)).double()
    return method, method.prepare_network(model)


def oracle(features, weight, mean, heads, alpha):
    """(tau/K) sum_k (x_k/|x_k| - alpha cos(x_k, m_k) m_k/|m_k|) . w_k/(|w_k| + gamma)."""
    size = features.shape[1] // heads
    rows = []
    for x in features.tolist():
        row = []
        for w in weight.tolist():
            total = 0.0
            for k in range(heads):
                part = slice(k * size, (k + 1) * size)
                x_k, w_k, m_k = x[part], w[part], mean.tolist()[part]
                cosine = sum(a * b for a, b in zip(x_k, m_k, strict=True)) / (math.hypot(*x_k) * math.hypot(*m_k))
                for a, b, m in zip(x_k, w_k, m_k, strict=True):
                    left = a / math.hypot(*x_k) - alpha * cosine * m / math.hypot(*m_k)
                    total += left * b / (math.hypot(*w_k) + GAMMA)
            row.append(TAU / heads * total)
        rows.append(row)
    return rows


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("num_classes", [2, 3, 100])
def test_predictions_equal_naive_loops(alpha, heads, num_classes):
    method, model = make(num_classes, num_heads=heads, alpha=alpha)
    features = torch.randn(5, 6, dtype=torch.float64)
    method.observe(torch.randn(8, 6, dtype=torch.float64) + 1)
    expected = oracle(features, model.head.weight, method.mean_feature, heads, alpha)
    for found, wanted in zip(method.predict([model], features).tolist(), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_training_logits_are_those_without_the_mean_and_alpha_zero_predicts_them():
    method, model = make(alpha=0.0)
    features = torch.randn(5, 6, dtype=torch.float64)
    method.observe(features + 1)
    expected = oracle(features, model.head.weight, torch.ones(6), 2, 0.0)
    logits = model(features).logits
    torch.testing.assert_close(logits, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(method.predict([model], features), logits, rtol=0, atol=1e-12)


def test_before_any_training_nothing_is_taken_off():
    method, model = make(alpha=2.0)
    features = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(method.predict([model], features), model(features).logits)


def test_a_feature_along_the_mean_says_nothing_with_alpha_one():
    method, model = make(num_heads=1)
    method.observe(torch.ones(4, 6, dtype=torch.float64))
    found = method.predict([model], torch.full((1, 6), 3.0, dtype=torch.float64))
    torch.testing.assert_close(found, torch.zeros(1, 3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_mean_has_the_direction_of_the_published_running_sum():
    method, _ = make(momentum=0.9)
    published = torch.zeros(6, dtype=torch.float64)
    for _ in range(5):
        batch = torch.randn(7, 6, dtype=torch.float64) + 0.5
        published = 0.9 * published + batch.mean(0)
        method.observe(batch)
    torch.testing.assert_close(F.normalize(method.mean_feature, dim=0), F.normalize(published, dim=0))


def test_the_loss_is_cross_entropy_and_moves_the_mean_without_a_graph():
    method, model = make()
    inputs, targets = torch.randn(6, 6, dtype=torch.float64).requires_grad_(), torch.arange(6) % 3
    output, context = model(inputs), SimpleNamespace(head=model.head, progress=0.5)
    value = method.loss(output, Batch(inputs, targets, None, targets), context)
    assert torch.equal(value, F.cross_entropy(output.logits, targets))
    torch.testing.assert_close(method.mean_feature, 0.1 * inputs.detach().mean(0), rtol=0, atol=1e-6)
    assert not method.mean_feature.requires_grad


def test_gradients_of_the_head_are_right_and_finite_at_zero():
    _, model = make()
    features = torch.randn(4, 6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(model.head, (features,))
    zero = torch.zeros(2, 6, dtype=torch.float64).requires_grad_()
    with torch.no_grad():
        model.head.weight[0] = 0
    model.head(zero).sum().backward()
    model.head(features).sum().backward()
    assert torch.isfinite(zero.grad).all()
    assert torch.isfinite(model.head.weight.grad).all()


def test_the_head_keeps_the_weights_of_the_network_and_draws_nothing():
    head = nn.Linear(6, 3)
    before = torch.get_rng_state()
    made = MultiHeadNormalisedLinear.of(head, 2, TAU, GAMMA)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(made.weight, head.weight)
    assert made.bias is None
    assert "num_heads=2, tau=16" in repr(made)
