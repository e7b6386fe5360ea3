"""What tests on several ranks rely on: ranks are processes of their own, and one that fails fails the test."""

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

Ranks = Callable[..., list[Any]]
HAPPENED: list[int] = []


def everything_that_may_differ(rank):
    HAPPENED.append(rank)
    shared = torch.tensor([rank + 1.0])
    dist.all_reduce(shared)
    return {
        "rank": rank,
        "sum": shared.item(),
        "threads": torch.get_num_threads(),
        "process": os.getpid(),
        "hash": hash("any text"),
        "random": random.random(),
        "numpy": float(np.random.rand()),
        "torch": torch.rand(1).item(),
        "environment": os.environ.get("ONLY_FOR_THIS_TEST"),
        "happened": len(HAPPENED),
    }


def test_ranks_compute_together_and_are_apart_in_all_else(run_on_ranks, monkeypatch):
    monkeypatch.setenv("ONLY_FOR_THIS_TEST", "yes")
    first, second = run_on_ranks(everything_that_may_differ)
    assert [first["rank"], second["rank"]] == [0, 1]
    for name, wanted in {"sum": 3.0, "threads": 1, "environment": "yes", "happened": 1}.items():
        assert [first[name], second[name]] == [wanted, wanted], name
    for name in ("process", "random", "numpy", "torch"):  # generators without a seed
        assert first[name] != second[name], name
    if "PYTHONHASHSEED" not in os.environ:
        assert first["hash"] != second["hash"]


def test_a_call_sees_nothing_of_the_one_before(run_on_ranks, monkeypatch):
    monkeypatch.setenv("ONLY_FOR_THIS_TEST", "yes")
    before = run_on_ranks(everything_that_may_differ)
    monkeypatch.delenv("ONLY_FOR_THIS_TEST")
    after = run_on_ranks(everything_that_may_differ)
    for rank in (0, 1):
        for name in ("process", "random", "numpy", "torch"):
            assert after[rank][name] != before[rank][name], name
        assert after[rank]["environment"] is None
        assert after[rank]["happened"] == 1


def second_rank_fails(rank):
    print(f"rank {rank} speaks")
    if rank == 1:
        raise RuntimeError("the second rank is tired")


def second_rank_dies(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_fails_fails_the_test_with_all_it_said(run_on_ranks):
    with pytest.raises(
        AssertionError, match=r"(?s)\['0', '1'\].*rank 1 speaks.*RuntimeError: the second rank is tired"
    ):
        run_on_ranks(second_rank_fails)


def test_a_rank_that_dies_fails_the_test(run_on_ranks):
    with pytest.raises(AssertionError, match=r"\['0', '-9'\]"):
        run_on_ranks(second_rank_dies)
