"""ELR, the loss mixture and truncated Lq against their formulas, visit by visit and pass by pass."""

from __future__ import annotations

import math
import warnings
from functools import partial

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods import Setup
from icda.methods.noisy_labels import ELR, LossMixture, TruncatedLq, lower_component
from icda.models.base import FeatureClassifier, Output
from support import make_context, make_network

ELR_SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([4, 4, 4]), epochs=2, num_samples=12)
ELR_TARGETS = torch.arange(12) % 3


def visit(method: ELR, logits: Tensor, rows: Tensor) -> Tensor:
    return method.loss(Output(logits, logits), Batch(logits, ELR_TARGETS[rows], None, rows), make_context())


def test_loss_and_running_means_are_those_of_the_paper() -> None:
    method, means = ELR(ELR_SETUP, weight=3.0, momentum=0.7).double(), torch.zeros(12, 3, dtype=torch.double)
    generator = torch.Generator().manual_seed(0)
    for rows in (torch.arange(0, 8), torch.arange(4, 12), torch.arange(0, 12)):
        logits = (2 * torch.randn(len(rows), 3, generator=generator)).double()
        wanted = 0.0
        for i, row in enumerate(rows.tolist()):
            p = logits[i].float().softmax(0).double()
            means[row] = 0.7 * means[row] + 0.3 * p / p.sum()
            wanted += -math.log(p[ELR_TARGETS[row]]) + 3.0 * math.log(1 - float(p @ means[row]))
        found = visit(method, logits, rows)
        assert float(found) == pytest.approx(wanted / len(rows), rel=1e-5)
        torch.testing.assert_close(method.means, means, rtol=1e-5, atol=1e-6)


def test_without_weight_it_is_cross_entropy() -> None:
    logits = torch.randn(12, 3)
    found = visit(ELR(ELR_SETUP, weight=0.0), logits, torch.arange(12))
    torch.testing.assert_close(found, F.cross_entropy(logits, ELR_TARGETS))


def test_a_network_that_always_disagreed_with_a_label_is_pulled_back_from_it() -> None:
    method = ELR(ELR_SETUP)
    answers = F.one_hot((ELR_TARGETS + 1) % 3, 3) * 8.0  # never the label
    for _ in range(10):
        visit(method, answers, torch.arange(12))
    logits = torch.zeros(12, 3, requires_grad=True)
    visit(method, logits, torch.arange(12)).backward()
    assert logits.grad is not None
    towards_label = -logits.grad.gather(1, ELR_TARGETS[:, None])
    plain = torch.zeros(12, 3, requires_grad=True)
    F.cross_entropy(plain, ELR_TARGETS).backward()
    assert plain.grad is not None
    assert (towards_label < -plain.grad.gather(1, ELR_TARGETS[:, None])).all()


def test_an_answer_that_is_certain_leaves_the_loss_finite() -> None:
    method = ELR(ELR_SETUP)
    for _ in range(50):
        loss = visit(method, F.one_hot(ELR_TARGETS, 3) * 1e4, torch.arange(12))
    assert torch.isfinite(loss)


MIXTURE_SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([8, 8, 8]), epochs=20, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
mixture_context = partial(make_context, data=(INPUTS, TARGETS), num_epochs=20)


def losses(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.randn(300, generator=generator).abs(), 4 + torch.randn(200, generator=generator)
    return torch.cat([low, high])


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_component_is_that_of_scikit_learns_mixture(seed: int) -> None:
    values = losses(seed).double()
    scaled = ((values - values.min()) / (values.max() - values.min()))[:, None].numpy()
    mixture = GaussianMixture(2, reg_covar=1e-4, tol=1e-9, max_iter=500, random_state=0).fit(scaled)
    wanted = torch.from_numpy(mixture.predict_proba(scaled)[:, mixture.means_.argmin()])
    torch.testing.assert_close(lower_component(values), wanted, atol=1e-3, rtol=0)


def test_losses_that_are_all_alike_are_trusted() -> None:
    assert torch.equal(lower_component(torch.full((5,), 0.7)), torch.ones(5))


def test_labels_are_trusted_until_the_start_and_then_by_the_losses_of_a_pass() -> None:
    torch.manual_seed(0)
    model = FeatureClassifier(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 3))
    method = LossMixture(MIXTURE_SETUP, start=0.1)
    method.on_epoch_start(mixture_context(model, epoch=1))
    assert torch.equal(method.clean, torch.ones(24))
    method.on_epoch_start(mixture_context(model.train(), epoch=2))
    model.eval()
    with torch.no_grad():
        wanted = lower_component(F.cross_entropy(model(INPUTS).logits, TARGETS, reduction="none"))
    torch.testing.assert_close(method.clean, wanted)
    assert method.epoch_figures()["label_trust"] == pytest.approx(float(wanted.mean()))


def test_the_loss_mixes_label_and_own_answer_by_trust() -> None:
    method = LossMixture(MIXTURE_SETUP)
    method.clean.copy_(torch.rand(24, generator=torch.Generator().manual_seed(2)))
    logits, rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(3)), torch.tensor([3, 1, 20, 7, 9, 11])
    wanted = 0.0
    for z, row in zip(logits, rows.tolist(), strict=True):
        chances, trust = z.softmax(0), float(method.clean[row])
        wanted += -trust * float(chances[TARGETS[row]].log()) - (1 - trust) * float(chances.max().log())
    found = method.loss(Output(logits, logits), Batch(logits, TARGETS[rows], None, rows), make_context())
    assert float(found) == pytest.approx(wanted / 6, rel=1e-5)


SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([8, 8, 8]), epochs=120, num_samples=24)
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
