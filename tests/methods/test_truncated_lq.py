import warnings
from functools import partial

import pytest
import torch
from torch import Tensor

from icda.data.task import Batch
from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods import Setup
from icda.methods.truncated_lq import TruncatedLq
from icda.models.base import FeatureClassifier
from support import make_context, make_network

SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([8, 8, 8]), epochs=120, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
context_of = partial(make_context, data=(INPUTS, TARGETS), num_epochs=120)


@pytest.fixture
def model() -> FeatureClassifier:
    model = make_network()
    with torch.no_grad():
        model.head.weight.mul_(8)  # some probabilities beyond a half
    return model


def probabilities(model: FeatureClassifier) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(INPUTS).logits.softmax(1)[torch.arange(24), TARGETS]


def test_passes_start_at_the_share_of_the_epochs_and_come_every_so_many() -> None:
    due = [epoch for epoch in range(120) if TruncatedLq(SETUP).is_pass_due(epoch)]
    assert due == [40, 50, 60, 70, 80, 90, 100, 110]
    assert [e for e in range(120) if TruncatedLq(SETUP, start=0.0, refresh=50).is_pass_due(e)] == [0, 50, 100]
    assert not any(TruncatedLq(SETUP, start=1.0).is_pass_due(epoch) for epoch in range(120))


def test_a_pass_keeps_the_samples_at_or_above_the_threshold_and_may_take_one_back(model: FeatureClassifier) -> None:
    method = TruncatedLq(SETUP)
    method.on_epoch_start(context_of(model, epoch=39))
    assert method.kept.all()
    method.on_epoch_start(context_of(model, epoch=40))
    expected = probabilities(model) >= 0.5
    assert 0 < int(expected.sum()) < 24
    assert torch.equal(method.kept, expected)
    with torch.no_grad():
        model.head.weight.mul_(-1)
    method.on_epoch_start(context_of(model, epoch=45))
    assert torch.equal(method.kept, expected), "not due yet"
    method.on_epoch_start(context_of(model, epoch=50))
    again = probabilities(model) >= 0.5
    assert torch.equal(method.kept, again)
    assert (again & ~expected).any()


@pytest.mark.parametrize("q", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("threshold", [0.3, 0.5])
def test_the_loss_is_the_lq_loss_of_what_is_kept_and_a_constant_for_the_rest(
    q: float, threshold: float, model: FeatureClassifier
) -> None:
    method = TruncatedLq(SETUP, q=q, threshold=threshold)
    method.on_epoch_start(context_of(model, epoch=40))
    model.eval().double()
    rows = torch.tensor([5, 0, 17, 3, 9, 22, 11])
    output = model(INPUTS[rows].double())
    value = method.loss(output, Batch(INPUTS[rows], TARGETS[rows], None, rows), context_of(model, epoch=40))
    total = torch.zeros((), dtype=torch.float64)
    for row, logits in zip(rows.tolist(), output.logits, strict=True):
        p = logits.softmax(0)[TARGETS[row]] if method.kept[row] else torch.tensor(threshold, dtype=torch.float64)
        total = total + (-p.log() if q == 0 else (1 - p**q) / q)
    torch.testing.assert_close(value, total / 7, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(value, [output.logits])
    assert torch.equal(slope.abs().sum(1) > 0, method.kept[rows]), "no gradient from samples given up"


def test_before_the_first_pass_it_is_the_lq_loss(model: FeatureClassifier) -> None:
    output, batch = model(INPUTS), Batch(INPUTS, TARGETS, None, torch.arange(24))
    value = TruncatedLq(SETUP).loss(output, batch, context_of(model, epoch=0))
    assert torch.equal(value, generalized_cross_entropy(output.logits, TARGETS, 0.7).mean())


def test_when_no_sample_passes_all_are_kept_and_a_warning_says_so(model: FeatureClassifier) -> None:
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    method = TruncatedLq(SETUP)
    with pytest.warns(UserWarning, match=r"no training sample reaches p_y >= 0.5 in epoch 41, so all are kept"):
        method.on_epoch_start(context_of(model, epoch=40))
    assert method.kept.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TruncatedLq(SETUP, threshold=0.3).on_epoch_start(context_of(model, epoch=40))  # a third each passes
