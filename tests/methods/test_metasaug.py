"""MetaSAug against its formula: cross entropy first, then class-balanced ISDA with corrected covariances."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda import ClassStatistics
from icda.methods import Setup
from icda.methods.meta_learning import MetaSAug
from icda.models import FeatureClassifier
from support import before_a_step, make_batch, make_context, meta_gradients

CLASSES, DIM, RATE = 4, 6, 0.3
COUNTS = torch.tensor([400, 200, 100, 5])
METADATA = make_batch(99, size=8)
context_of = partial(make_context, rate=RATE, next_metadata=lambda: METADATA)


def make(**options: Any) -> MetaSAug:
    return MetaSAug(Setup(CLASSES, DIM, COUNTS, epochs=1, num_samples=705), **options).double().train()


def class_weights() -> list[float]:
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in COUNTS.tolist()]
    return [value * CLASSES / sum(raw) for value in raw]


def naive_loss(logits: Tensor, targets: Tensor, weight: Tensor, cov: Tensor, lam: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for i, y in enumerate(targets.tolist()):
        differences = [weight[c] - weight[y] for c in range(CLASSES)]
        spread = [(d @ cov[y] @ d).clamp(min=0) for d in differences]  # a corrected covariance may be indefinite
        adjusted = torch.stack([logits[i, c] + lam / 2 * spread[c] for c in range(CLASSES)])
        total = total + class_weights()[y] * (torch.logsumexp(adjusted, 0) - adjusted[y])
    return total / sum(class_weights()[y] for y in targets.tolist())


def test_before_the_start_it_is_cross_entropy_without_statistics(model: FeatureClassifier) -> None:
    method, plain = make(), copy.deepcopy(model)
    for k in range(3):
        wanted = F.cross_entropy(plain(make_batch(k).inputs).logits, make_batch(k).targets)
        gradients = torch.autograd.grad(wanted, list(plain.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
        result = method.step(make_batch(k), context_of(model, progress=0.79))
        assert torch.equal(result.loss, wanted.detach())
        assert result.extra == {}
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-14)
    assert float(method.criterion.statistics.count.sum()) == 0
    assert "meta_loss" in method.step(make_batch(3), context_of(model, progress=0.8)).extra


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_the_real_loss_is_class_balanced_isda_with_covariances_stepped_along_their_gradients(
    kind: str, model: FeatureClassifier
) -> None:
    method, context = make(start=0.5, statistics_rate=10.0, covariance=kind), context_of(model, progress=0.9)
    twin, data, output = before_a_step(method, model, context)
    tensors, inner = twin.outer(output, data, context)
    assert len(tensors) == 1, "MetaSAug corrects covariances, not means"
    before = tensors[0].detach()
    weight, targets = model.head.weight, data.targets
    plain = torch.diag_embed(before) if kind == "diagonal" else before
    torch.testing.assert_close(
        inner(output.logits, weight), naive_loss(output.logits, targets, weight, plain, 0.45), rtol=1e-9, atol=0
    )
    (gradient,) = meta_gradients(model, data, METADATA, inner, tensors, RATE)
    stepped = before - 10.0 * gradient
    cov = torch.diag_embed(stepped) if kind == "diagonal" else (stepped + stepped.mT) / 2
    assert (cov - plain).abs().max() > 1e-3, "a correction too small to see proves nothing"
    wanted = naive_loss(output.logits, targets, weight, cov, 0.45).detach()
    torch.testing.assert_close(method.step(data, context).loss, wanted, rtol=1e-9, atol=0)


def test_a_correction_serves_one_step_and_the_running_statistics_are_plain_sums(model: FeatureClassifier) -> None:
    method, plain = make(start=0.0, statistics_rate=5.0), ClassStatistics(CLASSES, DIM).double()
    for k in range(3):
        with torch.no_grad():
            plain.update(model(make_batch(k).inputs).features, make_batch(k).targets)
        method.step(make_batch(k), context_of(model, progress=0.9))
    for name, value in plain.state_dict().items():
        assert torch.equal(method.criterion.statistics.state_dict()[name], value), name


def test_between_looks_ahead_the_running_covariances_are_used(model: FeatureClassifier) -> None:
    method, context = make(start=0.0, every=2, statistics_rate=10.0), context_of(model, progress=0.9)
    method.step(make_batch(0), context)
    context.iteration, plain = 1, copy.deepcopy(method.criterion.statistics)
    output = model(make_batch(1).inputs)
    plain.update(output.features, make_batch(1).targets)
    wanted = naive_loss(output.logits, make_batch(1).targets, model.head.weight, plain.covariance, 0.45)
    torch.testing.assert_close(method.step(make_batch(1), context).loss, wanted.detach(), rtol=1e-9, atol=0)


def test_the_published_weights_are_the_default() -> None:
    assert make().weights.tolist() == pytest.approx(class_weights())
    alike = make(effective_beta=0.0).weights
    assert torch.equal(alike, torch.ones(CLASSES, dtype=torch.float64))
