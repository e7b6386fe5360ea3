"""AFR: who is held back, how the head's samples are drawn, and what holds the head where it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Context, Setup, Stage, create_method
from icda.methods.afr import AFR
from icda.models.base import FeatureClassifier, Output

N = 40
SETUP = Setup(3, 5, torch.tensor([14, 13, 13]), epochs=10, num_samples=N, seed=2)
INPUTS = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(N) % 3


def make_model() -> FeatureClassifier:
    torch.manual_seed(0)
    return FeatureClassifier(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3))


def context_of(model: FeatureClassifier, stage: Stage, epoch: int = 0) -> Context:
    def batches() -> Iterator[Batch]:
        for rows in torch.arange(N).split(7):
            yield Batch(INPUTS[rows], TARGETS[rows], None, rows)

    return Context([model], [model], [], lambda loss: None, batches, epoch=epoch, num_epochs=10, stage=stage)


def test_the_first_stage_learns_from_all_but_the_samples_held_back() -> None:
    method, logits = AFR(SETUP, held_share=0.3), torch.randn(N, 3, dtype=torch.float64)
    batch = Batch(INPUTS, TARGETS, None, torch.arange(N))
    found = method.loss(Output(torch.zeros(N, 5), logits), batch, context_of(make_model(), method.stages(10)[0]))
    kept = [i for i in range(N) if not method.held[i]]
    assert 0 < len(kept) < N
    expected = sum(float(F.cross_entropy(logits[[i]], TARGETS[[i]])) for i in kept) / len(kept)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def test_a_batch_of_held_samples_alone_teaches_nothing() -> None:
    method, rows = AFR(SETUP), AFR(SETUP).held.nonzero().flatten()
    logits = torch.randn(len(rows), 3, requires_grad=True)
    batch = Batch(INPUTS[rows], TARGETS[rows], None, rows)
    loss = method.loss(Output(torch.zeros(len(rows), 5), logits), batch, context_of(make_model(), method.stages(10)[0]))
    assert float(loss) == 0
    assert not torch.autograd.grad(loss, [logits])[0].any()


def test_the_head_is_taught_by_held_samples_drawn_by_how_little_they_are_believed() -> None:
    model, method = make_model(), AFR(SETUP, held_share=0.4, gamma=3.0)
    first, _ = method.stages(10)
    method.on_epoch_end(context_of(model, first, epoch=first.epochs - 2))
    assert method.sampling_weights().tolist() == [1.0] * N, "not before the stage ends"
    model.train()
    method.on_epoch_end(context_of(model, first, epoch=first.epochs - 1))
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
    method.on_epoch_end(context_of(model, first, epoch=first.epochs - 1))
    batch, logits = Batch(INPUTS, TARGETS, None, torch.arange(N)), torch.randn(N, 3)
    output = Output(torch.zeros(N, 5), logits)
    plain = float(F.cross_entropy(logits, TARGETS))
    assert float(method.loss(output, batch, context_of(model, second))) == pytest.approx(plain)
    with torch.no_grad():
        model.head.weight.add_(0.5)  # type: ignore[operator,union-attr]
        model.head.bias.sub_(1.0)  # type: ignore[operator,union-attr]
    moved = plain + 0.7 * (15 * 0.25 + 3 * 1.0)
    assert float(method.loss(output, batch, context_of(model, second))) == pytest.approx(moved, rel=1e-5)


def test_the_weights_are_state_whatever_the_size_of_the_data() -> None:
    model, method = make_model(), AFR(SETUP)
    first, _ = method.stages(10)
    method.on_epoch_end(context_of(model, first, epoch=first.epochs - 1))
    for setup in (SETUP, replace(SETUP, num_samples=3)):
        restored = AFR(setup)
        restored.load_state_dict(method.state_dict())
        assert torch.equal(restored.sampling_weights(), method.sampling_weights())
        assert torch.equal(restored.first_weight, method.first_weight)


def loss_on_rank(rank: int) -> Tensor:
    method, logits = AFR(SETUP), torch.linspace(-1, 1, 3 * N, dtype=torch.float64).view(N, 3)
    rows = torch.arange(0, 15) if rank == 0 else torch.arange(15, N)
    batch = Batch(INPUTS[rows], TARGETS[rows], None, rows)
    output = Output(torch.zeros(len(rows), 5), logits[rows])
    return method.loss(output, batch, context_of(make_model(), method.stages(10)[0])) * len(rows) / N


def test_two_ranks_have_the_loss_of_one_process(run_on_ranks: Callable[..., list[Any]]) -> None:
    method, logits = AFR(SETUP), torch.linspace(-1, 1, 3 * N, dtype=torch.float64).view(N, 3)
    batch = Batch(INPUTS, TARGETS, None, torch.arange(N))
    whole = method.loss(Output(torch.zeros(N, 5), logits), batch, context_of(make_model(), method.stages(10)[0]))
    torch.testing.assert_close(sum(run_on_ranks(loss_on_rank)), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_share": 0.0}, r"held_share is a share of the training samples in \(0, 1\), got 0.0"),
        ({"gamma": -1.0}, "gamma is a finite number, 0 or more, got -1"),
        ({"decay": math.inf}, "decay is a finite number"),
        ({"first_stage": 1.0}, "first_stage is a share"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_method("afr", SETUP, options)
