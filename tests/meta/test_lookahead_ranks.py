"""A look-ahead on two ranks has the gradients of one process, whatever the shares of batch and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.meta import Forward, MetaGradient, look_ahead
from icda.models import FeatureClassifier, create_model

CLASSES, RATE = 3, 0.5
SHARES = {"equal": (slice(0, 4), slice(4, 8)), "unequal": (slice(0, 6), slice(6, 8))}


def problem() -> tuple[FeatureClassifier, Tensor, Tensor, Tensor]:
    """A network, inputs of a batch of 8 and of 8 metadata samples, and class weights to learn."""
    torch.manual_seed(0)
    model = create_model("mlp", CLASSES, (5,), hidden=6).double()
    inputs, metadata = (torch.randn(8, 5, dtype=torch.float64) for _ in range(2))
    return model, inputs, metadata, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)


def gradients(rows: slice, meta_rows: slice, mode: Any) -> MetaGradient:
    model, inputs, metadata, weights = problem()
    targets = (torch.arange(8) % CLASSES)[rows]

    def inner(logits: Tensor, weight: Tensor) -> Tensor:
        return (weights[targets] * F.cross_entropy(logits, targets, reduction="none")).mean()

    forward = Forward.of(model, inputs[rows], record=mode == "difference")
    meta_targets = (torch.arange(8) % CLASSES)[meta_rows]
    return look_ahead(model, forward, inner, [weights], metadata[meta_rows], meta_targets, RATE, mode)


def on_rank(rank: int) -> dict[str, Any]:
    found = {}
    for share, rows in SHARES.items():
        for mode in ("full", "head", "difference"):
            # The rank with the larger part of the batch has the smaller part of the metadata.
            result = gradients(rows[rank], SHARES["equal"][rank] if share == "equal" else ODD[rank], mode)
            found[f"{share} {mode}"] = (result.gradients[0], result.meta_loss)
    return found


ODD = (slice(0, 3), slice(3, 8))


@pytest.fixture(scope="module")
def two_ranks(run_on_ranks: Callable[..., list[Any]]) -> list[Any]:
    return run_on_ranks(on_rank)


@pytest.mark.parametrize("mode", ["full", "head", "difference"])
@pytest.mark.parametrize("share", SHARES)
def test_two_ranks_look_ahead_as_one_process_does(share: str, mode: str, two_ranks: list[Any]) -> None:
    whole = gradients(slice(None), slice(None), mode)
    assert whole.gradients[0].abs().min() > 1e-4
    for rank in two_ranks:
        gradient, meta_loss = rank[f"{share} {mode}"]
        # Both take the same step, so that their differences err alike but for rounding, which the step makes larger.
        rtol = 1e-6 if mode == "difference" else 1e-10
        torch.testing.assert_close(gradient, whole.gradients[0], rtol=rtol, atol=1e-14)
        torch.testing.assert_close(meta_loss, whole.meta_loss, rtol=1e-12, atol=0)
