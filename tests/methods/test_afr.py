"""AFR: who is held back, how the head's samples are drawn, and what holds the head where it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.hard_samples import AFR
from icda.models.base import FeatureClassifier, Output
from support import make_context

N = 40
SETUP = Setup(3, 5, torch.tensor([14, 13, 13]), epochs=10, num_samples=N, seed=2)
INPUTS = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(N) % 3


def make_model() -> FeatureClassifier:
    torch.manual_seed(0)
    return FeatureClassifier(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3))


def first_loss(method: AFR, logits: Tensor, rows: Tensor) -> Tensor:
    """The loss of the first stage on some samples."""
    output, batch = Output(torch.zeros(len(rows), 5), logits), Batch(INPUTS[rows], TARGETS[rows], None, rows)
    loss: Any = method.stages(10)[0].loss
    return loss(output, batch, make_context(make_model()))


def test_the_first_stage_learns_from_all_but_the_samples_held_back() -> None:
    method, logits = AFR(SETUP, held_share=0.3), torch.randn(N, 3, dtype=torch.float64)
    found = first_loss(method, logits, torch.arange(N))
    kept = [i for i in range(N) if not method.held[i]]
    assert 0 < len(kept) < N
    expected = sum(float(F.cross_entropy(logits[[i]], TARGETS[[i]])) for i in kept) / len(kept)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def test_a_batch_of_held_samples_alone_teaches_nothing() -> None:
    method, rows = AFR(SETUP), AFR(SETUP).held.nonzero().flatten()
    logits = torch.randn(len(rows), 3, requires_grad=True)
    loss = first_loss(method, logits, rows)
    assert float(loss) == 0
    assert not torch.autograd.grad(loss, [logits])[0].any()


def test_the_head_is_taught_by_held_samples_drawn_by_how_little_they_are_believed() -> None:
    model, method = make_model(), AFR(SETUP, held_share=0.4, gamma=3.0)
    model.train()
    method.stages(10)[0].on_end(make_context(model, data=(INPUTS, TARGETS)))
    assert model.training
    weights = method.sampling_weights()
    model.eval()
    held = [i for i in range(N) if method.held[i]]
    for i in range(N):
        with torch.no_grad():
            believed = float(model(INPUTS[[i]]).logits.softmax(1)[0, TARGETS[i]])
        alike = sum(int(TARGETS[j]) == int(TARGETS[i]) for j in held)
        expected = math.exp(-3 * believed) / alike if i in held else 0.0
        assert float(weights[i]) == pytest.approx(expected, abs=1e-6)


def test_the_head_is_held_back_to_where_the_first_stage_left_it() -> None:
    model, method = make_model(), AFR(SETUP, decay=0.7)
    first, second = method.stages(10)
    context = make_context(model, data=(INPUTS, TARGETS))
    first.on_end(context)
    batch, logits = Batch(INPUTS, TARGETS, None, torch.arange(N)), torch.randn(N, 3)
    output = Output(torch.zeros(N, 5), logits)
    plain = float(F.cross_entropy(logits, TARGETS))
    assert float(second.loss(output, batch, context)) == pytest.approx(plain)
    with torch.no_grad():
        model.head.weight.add_(0.5)  # type: ignore[operator,union-attr]
        model.head.bias.sub_(1.0)  # type: ignore[operator,union-attr]
    moved = plain + 0.7 * (15 * 0.25 + 3 * 1.0)
    assert float(second.loss(output, batch, context)) == pytest.approx(moved, rel=1e-5)


def loss_on_rank(rank: int) -> Tensor:
    method, logits = AFR(SETUP), torch.linspace(-1, 1, 3 * N, dtype=torch.float64).view(N, 3)
    rows = torch.arange(0, 15) if rank == 0 else torch.arange(15, N)
    return first_loss(method, logits[rows], rows) * len(rows) / N


def test_two_ranks_have_the_loss_of_one_process(run_on_ranks: Callable[..., list[Any]]) -> None:
    method, logits = AFR(SETUP), torch.linspace(-1, 1, 3 * N, dtype=torch.float64).view(N, 3)
    whole = first_loss(method, logits, torch.arange(N))
    torch.testing.assert_close(sum(run_on_ranks(loss_on_rank)), whole, rtol=0, atol=1e-12)
