"""A head spread over ranks, and a rank that validates alone."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from icda import ICDALoss
from icda.integrations import FeatureTap

KINDS = ("diagonal", "full", "low_rank")


def trained_sharded(rows, covariance, sharded):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    inputs, targets = torch.randn(12, 8)[rows], (torch.arange(12) % 3)[rows]
    loss, tap = ICDALoss(3, 6, [4, 4, 4], covariance=covariance), FeatureTap(model)
    if sharded:
        for layer in (model[0], model[2], model):
            fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        model(inputs)
        optimizer.zero_grad()
        loss(tap.features, targets, tap.head, 0.5, tap.logits).backward()
        optimizer.step()
    whole: list[Any] = [value.full_tensor() if sharded else value for value in model.parameters()]
    return [value.detach() for value in whole]


def on_sharded_rank(rank):
    return {kind: trained_sharded(slice(6 * rank, 6 * rank + 6), kind, sharded=True) for kind in KINDS}


@pytest.fixture(scope="module")
def ranks(run_on_ranks):
    return run_on_ranks(on_sharded_rank)


@pytest.mark.parametrize("covariance", KINDS)
def test_a_sharded_head_on_two_ranks_trains_as_a_whole_one(covariance, ranks):
    wanted = trained_sharded(slice(None), covariance, sharded=False)
    for rank in ranks:
        for found, value in zip(rank[covariance], wanted, strict=True):
            torch.testing.assert_close(found, value, rtol=0, atol=2e-6)


def trained(rows, validates):
    torch.manual_seed(0)
    head, loss = nn.Linear(6, 3), ICDALoss(3, 6, [4, 4, 4])
    features, targets = torch.randn(24, 6), torch.arange(24) % 3
    for part in (slice(0, 12), slice(12, 24)):
        loss(features[part][rows], targets[part][rows], head, 0.5).backward()
        if validates:
            with torch.no_grad():  # the loss is still in train mode, as in most loops
                loss(torch.randn(5, 6), torch.arange(5) % 3, head, 0.5)
    return {name: value.clone() for name, value in loss.statistics.state_dict().items()}


def on_rank(rank):
    return trained(slice(6 * rank, 6 * rank + 6), validates=rank == 0)


def test_the_first_rank_may_validate_alone(run_on_ranks):
    wanted = trained(slice(None), validates=False)
    assert float(wanted["count"].sum()) == 24
    for rank in run_on_ranks(on_rank):
        for name, value in wanted.items():
            torch.testing.assert_close(rank[name], value, rtol=1e-5, atol=1e-6)
