"""Meta-ICDA in what real loops are made of: compiled models, autocast, several processes, accumulation, clipping."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import icda
from icda.models import FeatureClassifier

CLASSES, COUNTS = 3, [30, 20, 10]


def plain_model(dropout: float = 0.2) -> FeatureClassifier:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(dropout))
    return FeatureClassifier(encoder, nn.Linear(12, CLASSES))


def learner(model: nn.Module, **options: Any) -> icda.MetaICDA:
    torch.manual_seed(1)  # the strength network's weights
    loss = icda.ICDALoss(CLASSES, 12, COUNTS)
    return icda.MetaICDA(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **options)


def pair(seed: int, size: int = 12) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 8, generator=torch.Generator().manual_seed(seed)), torch.arange(size) % CLASSES


def moments(meta: icda.MetaICDA) -> list[Tensor]:
    """What one step told the strength network, as Adam keeps it."""
    return [state["exp_avg"] for state in meta.method.optimizer.state.values()]


def one_step(model: nn.Module, **options: Any) -> list[Tensor]:
    meta = learner(model, **options)
    torch.manual_seed(2)  # dropout's masks
    meta.step(pair(1), pair(2), progress=0.5)
    return moments(meta)


@pytest.mark.parametrize("compiled", ["whole", "encoder"])
@pytest.mark.parametrize("lookahead", ["full", "head", "difference"])
def test_a_compiled_model_learns_the_same_strengths(compiled: str, lookahead: str) -> None:
    wanted = one_step(plain_model(), lookahead=lookahead)
    model: Any = plain_model()
    if compiled == "whole":
        model = torch.compile(model, backend="eager")
    else:
        model.encoder = torch.compile(model.encoder, backend="eager")
    for found, value in zip(one_step(model, lookahead=lookahead), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("lookahead", ["full", "head"])
def test_autocast_gives_the_strengths_of_single_precision_up_to_rounding(lookahead: str) -> None:
    wanted = torch.cat([part.flatten() for part in one_step(plain_model(), lookahead=lookahead)])
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.cat([part.flatten() for part in one_step(plain_model(), lookahead=lookahead)])
    assert found.dtype == torch.float32
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert float(wanted.norm()) > 1e-5


def test_steps_inside_of_one_autocast_see_the_weights_of_the_step_before() -> None:
    apart, together = (plain_model(dropout=0.0) for _ in range(2))
    meta = learner(apart)
    for k in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            meta.step(pair(k), pair(10 + k), 0.5)
    meta = learner(together)
    with torch.autocast("cpu", torch.bfloat16):
        for k in range(3):
            meta.step(pair(k), pair(10 + k), 0.5)
    for one, other in zip(apart.parameters(), together.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_difference_of_half_precision_is_refused_before_anything_changes() -> None:
    model = plain_model()
    meta, before = learner(model, lookahead="difference"), copy.deepcopy(model.state_dict())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="half precision"):
        meta.loss(pair(1), pair(2), 0.5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert float(meta.method.criterion.statistics.count.sum()) == 0


def test_the_loss_and_a_loop_of_ones_own_do_what_step_does() -> None:
    models = [plain_model(dropout=0.0) for _ in range(2)]
    ours, theirs = (learner(model) for model in models)
    optimizer = ours.context.optimizers[0]
    for k in range(3):
        loss = ours.loss(pair(k), pair(10 + k), k / 3)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(models[0].parameters(), 1e9)
        optimizer.step()
        assert torch.equal(loss.detach(), theirs.step(pair(k), pair(10 + k), k / 3))
    for mine, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_gradients_of_several_calls_add_up_and_can_be_clipped() -> None:
    models = [plain_model(dropout=0.0) for _ in range(2)]
    together, apart = (learner(model) for model in models)
    sums = [torch.zeros_like(value) for value in models[1].parameters()]
    for k in range(2):
        (together.loss(pair(k), pair(10 + k), 0.5) / 2).backward()
        models[1].zero_grad()
        (apart.loss(pair(k), pair(10 + k), 0.5) / 2).backward()
        for total, value in zip(sums, models[1].parameters(), strict=True):
            assert value.grad is not None
            total += value.grad
    for total, value in zip(sums, models[0].parameters(), strict=True):
        torch.testing.assert_close(value.grad, total)
    nn.utils.clip_grad_norm_(models[0].parameters(), 0.01)
    grads = [value.grad.norm() for value in models[0].parameters() if value.grad is not None]
    assert float(torch.stack(grads).norm()) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    ("option", "named"), [({"lookahed": "head"}, "lookahead"), ({"foo": 1}, "foo"), ({"lambda0": 9.0}, "ICDALoss")]
)
def test_an_option_that_nobody_takes_is_refused(option: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, KeyError), match=named):
        learner(plain_model(), **option)


def test_a_model_that_returns_logits_alone_is_told_what_makes_one_that_does_not() -> None:
    plain = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    with pytest.raises(TypeError, match="from_torch"):
        learner(plain)


def test_sharded_parameters_are_refused() -> None:
    model = plain_model()
    model.head.weight.device_mesh = object()  # type: ignore[union-attr]  # what a DTensor has
    with pytest.raises(TypeError, match="FSDP"):
        learner(model)


MODES = ("full", "head", "difference")


def trained(rows: slice, wrap: bool, lookahead: str) -> list[Tensor]:
    torch.manual_seed(0)
    model = FeatureClassifier(nn.Sequential(nn.Linear(8, 12), nn.ReLU()), nn.Linear(12, CLASSES)).double()
    meta = learner(DistributedDataParallel(model) if wrap else model, lookahead=lookahead)
    meta.method.double()
    for k in range(6):
        batch, clean = ((inputs.double()[rows], targets[rows]) for inputs, targets in (pair(k), pair(100 + k)))
        meta.step(batch, clean, progress=k / 6)
    return [*model.parameters(), *meta.method.strength_network.parameters()]


def on_rank(rank: int) -> dict[str, Any]:
    rows = slice(6 * rank, 6 * rank + 6)
    found: dict[str, Any] = {mode: [value.detach() for value in trained(rows, True, mode)] for mode in MODES}
    try:
        trained(rows, False, "full")
    except ValueError as error:
        found["refusal"] = str(error)
    return found


def test_two_ranks_train_as_one_process_does_and_an_unwrapped_model_is_refused(
    run_on_ranks: Callable[..., list[Any]],
) -> None:
    wanted = {mode: trained(slice(None), False, mode) for mode in MODES}
    for rank in run_on_ranks(on_rank):
        for mode in MODES:
            for found, value in zip(rank[mode], wanted[mode], strict=True):
                rtol = 1e-5 if mode == "difference" else 1e-9  # whose rounding the small step makes larger
                torch.testing.assert_close(found, value.detach(), rtol=rtol, atol=1e-9)
        assert "DistributedDataParallel" in rank["refusal"]
