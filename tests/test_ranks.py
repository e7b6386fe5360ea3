"""Sums over ranks, with one process and with two."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from icda.ranks import all_gather_rows, all_mean, all_reduce, world_size


def test_one_process_is_a_world_of_its_own() -> None:
    value = torch.tensor([1.0, 2.0])
    assert world_size() == 1
    assert all_reduce(value) is value
    assert all_mean(value) is value
    assert all_gather_rows(value) is value


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    value = torch.tensor([float(rank + 1)])
    mean = all_mean(value)
    rows = all_gather_rows(torch.full((rank + 1, 2), float(rank)))
    torch.save((world_size(), value, mean, all_reduce(value.clone()), rows), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_ranks_sum_average_and_gather_rows_of_unequal_number(tmp_path: Path) -> None:
    multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        size, value, mean, total, rows = torch.load(tmp_path / f"{rank}.pt")
        assert size == 2
        assert value.tolist() == [rank + 1.0], "all_mean must not change its argument"
        assert mean.tolist() == [1.5]
        assert total.tolist() == [3.0]
        assert rows.tolist() == [[0, 0], [1, 1], [1, 1]]
