import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icda import direct_strength


def problem(seed, size, num_classes, dim):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    weight = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    return features, torch.randint(num_classes, (size,), generator=generator), weight


def cosine(left, right):
    dot = sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))
    return dot / (math.hypot(*left.tolist()) * math.hypot(*right.tolist()) + 1e-12)


@pytest.mark.parametrize("shape", [(7, 4, 5), (3, 9, 2), (5, 2, 1)])
def test_strengths_equal_the_cosines_of_a_double_loop(shape):
    features, targets, weight = problem(0, *shape)
    strength = direct_strength(features, targets, weight)
    for i, y in enumerate(targets.tolist()):
        assert strength.per_sample[i].item() == pytest.approx((1 - cosine(features[i], weight[y])) / 2, abs=1e-12)
        for c in range(len(weight)):
            expected = 0 if c == y else max(cosine(features[i], weight[c]), 0)
            assert strength.per_class[i, c].item() == pytest.approx(expected, abs=1e-12)


def test_known_products_give_the_same_strengths():
    features, targets, weight = problem(1, 6, 4, 3)
    given_products = direct_strength(features, targets, weight, products=features @ weight.T)
    for found, expected in zip(given_products, direct_strength(features, targets, weight), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(2, 8), st.integers(1, 6))
def test_strengths_lie_between_zero_and_one_and_are_zero_at_the_target(seed, size, classes, dim):
    features, targets, weight = problem(seed, size, classes, dim)
    weight[0] = features[0] * 3  # parallel: rounding must not carry the cosine past one
    strength = direct_strength(features.float(), targets, weight.float())
    for values in strength:
        assert (values >= 0).all()
        assert (values <= 1).all()
    assert (strength.per_class.gather(1, targets[:, None]) == 0).all()


def test_scaling_features_or_weights_changes_nothing():
    features, targets, weight = problem(2, 6, 4, 3)
    scaled = direct_strength(features * 50, targets, weight * torch.tensor([[0.1], [3.0], [20.0], [1.0]]))
    for found, expected in zip(scaled, direct_strength(features, targets, weight), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_a_zero_feature_or_weight_has_cosine_zero():
    features, targets, weight = problem(3, 4, 3, 5)
    features[1] = 0
    weight[2] = 0
    strength = direct_strength(features, targets, weight)
    assert not strength.per_class[1].any()
    assert not strength.per_class[:, 2].any()
    assert strength.per_sample[1] == 0.5


def test_strengths_carry_no_gradient():
    features, targets, weight = problem(4, 4, 3, 5)
    strength = direct_strength(features.requires_grad_(), targets, weight.requires_grad_())
    assert not strength.per_class.requires_grad
    assert not strength.per_sample.requires_grad
