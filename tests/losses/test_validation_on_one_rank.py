"""Validation by the first rank alone neither waits for the others nor changes what the loss has seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from icda import ICDALoss


def trained(rows: slice, validates: bool) -> dict[str, Tensor]:
    torch.manual_seed(0)
    head, loss = nn.Linear(6, 3), ICDALoss(3, 6, [4, 4, 4])
    features, targets = torch.randn(24, 6), torch.arange(24) % 3
    for part in (slice(0, 12), slice(12, 24)):
        loss(features[part][rows], targets[part][rows], head, 0.5).backward()
        if validates:
            with torch.no_grad():  # the loss is still in train mode, as in most loops
                loss(torch.randn(5, 6), torch.arange(5) % 3, head, 0.5)
    return {name: value.clone() for name, value in loss.statistics.state_dict().items()}


def on_rank(rank: int) -> dict[str, Tensor]:
    return trained(slice(6 * rank, 6 * rank + 6), validates=rank == 0)


def test_the_first_rank_may_validate_alone(run_on_ranks: Callable[..., list[Any]]) -> None:
    wanted = trained(slice(None), validates=False)
    assert float(wanted["count"].sum()) == 24
    for rank in run_on_ranks(on_rank):
        for name, value in wanted.items():
            torch.testing.assert_close(rank[name], value, rtol=1e-5, atol=1e-6)
