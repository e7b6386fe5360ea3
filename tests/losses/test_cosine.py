"""Cosine heads and losses: where the cosine is computed, training and prediction agree."""

import math
import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.integrations.feature_tap import FeatureTap
from icda.losses import LOSSES
from icda.losses.cosine import CosineHead, CosineLoss, cosines, unit_rows

COUNTS = torch.tensor([50, 20, 5])
KINDS = ["ldam", "adaptive_logit_adjustment"]


def make_batch(dtype=torch.float64):
    return torch.randn(8, 5, dtype=dtype).requires_grad_(), torch.arange(8) % 3, nn.Linear(5, 3).to(dtype)


def oracle(features, weight):
    rows = []
    for h in features.tolist():
        row = []
        for w in weight.tolist():
            product = sum(a * b for a, b in zip(h, w, strict=True))
            row.append(product / math.hypot(*h) / math.hypot(*w))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def test_cosines_equal_naive_loops_and_have_right_gradients():
    features, _, head = make_batch()
    torch.testing.assert_close(cosines(features, head.weight), oracle(features, head.weight), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(cosines, (features, head.weight))


def test_a_vector_of_length_zero_has_cosine_zero_and_no_gradient():
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).requires_grad_()
    units = unit_rows(vectors)
    assert units.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]
    (gradient,) = torch.autograd.grad(units[:, 0].sum(), vectors)
    assert gradient[0].tolist() == [0, 0]
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cosines_are_computed_in_single_precision(dtype):
    features, _, head = make_batch(dtype)
    found = cosines(features, head.weight)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, cosines(features.float(), head.weight.float()), rtol=0, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cosines(features, head.weight), found)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_head_gives_one_loss_and_the_bias_is_not_used(name):
    features, targets, head = make_batch()
    loss = LOSSES.get(name)(3, 5, COUNTS)
    convolution = nn.Conv2d(5, 3, 1).double()
    convolution.weight.data = head.weight.data[:, :, None, None]
    expected = loss(features, targets, head)
    for other in (convolution, (head.weight, None), (head.weight, head.bias + 7), CosineHead.of(head)):
        torch.testing.assert_close(loss(features, targets, other), expected, rtol=0, atol=1e-12)
    scaled = (3 * head.weight, None)
    torch.testing.assert_close(loss(0.1 * features, targets, scaled), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_given_logits_change_nothing_and_plain_ones_are_warned_of_once(name):
    features, targets, head = make_batch()
    loss = LOSSES.get(name)(3, 5, COUNTS)
    expected = loss(features, targets, head)
    with pytest.warns(UserWarning, match=r"Linear.*prepare_head") as seen:
        value = loss(features, targets, head, logits=head(features))
    assert torch.equal(value, expected)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    cosine, other = CosineHead.of(head), LOSSES.get(name)(3, 5, COUNTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(features, targets, head, logits=head(features))  # the second time nothing is said
        value = other(features, targets, cosine, logits=cosine(features))
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_the_prepared_head_predicts_what_the_loss_trains(name):
    features, _, head = make_batch()
    loss = LOSSES.get(name)(3, 5, COUNTS, scale=12.0)
    assert isinstance(loss, CosineLoss)
    prepared = loss.prepare_head(head)
    expected = 12 * oracle(features, head.weight)
    torch.testing.assert_close(prepared(features), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(loss.cosine_logits(features, head), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_a_prepared_network_learns_in_a_loop_of_ones_own_through_a_tap(name):
    model = nn.Sequential(OrderedDict(body=nn.Linear(4, 5), fc=nn.Linear(5, 3)))
    loss = LOSSES.get(name)(3, 5, COUNTS)
    model.fc = loss.prepare_head(model.fc)
    inputs, targets = torch.randn(30, 4), torch.arange(30) % 3
    inputs += 4 * F.one_hot(targets, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with FeatureTap(model) as tap, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            model(inputs)
            optimizer.zero_grad()
            loss(tap.features, targets, tap.head, logits=tap.logits).backward()
            optimizer.step()
        assert tap.head is model.fc
    assert (model(inputs).argmax(1) == targets).float().mean() > 0.95


def test_a_head_made_of_another_keeps_its_directions_dtype_and_draws_nothing():
    _, _, head = make_batch()
    before = torch.get_rng_state()
    made = CosineHead.of(head, scale=7.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert made.weight.dtype == torch.float64
    assert made.bias is None
    torch.testing.assert_close(made.weight.norm(dim=1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(cosines(made.weight, head.weight).diagonal(), torch.ones(3, dtype=torch.float64))
    assert "scale=7" in repr(made)
    assert not CosineHead.of(head.requires_grad_(False)).weight.requires_grad


def test_a_reset_head_has_new_weights_of_length_one():
    head = CosineHead(6, 4)
    old = head.weight.clone()
    head.reset_parameters()
    assert not torch.allclose(head.weight, old)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_bad_scale_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        CosineHead(5, 3, scale)
