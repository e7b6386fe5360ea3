"""Sums over ranks, with one process and with two."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from icda.errors import InputError, OperationError
from icda.first_rank import from_first_rank, together
from icda.ranks import all_gather_rows, all_mean, all_means, all_reduce, world_size


def test_one_process_is_a_world_of_its_own():
    value = torch.tensor([1.0, 2.0])
    assert world_size() == 1
    assert all_reduce(value) is value
    assert all_mean(value) is value
    assert all_gather_rows(value) is value
    assert all_means([value])[0] is value
    assert from_first_rank(lambda: value) is value
    with pytest.raises(RuntimeError, match="gloo"), together():  # nobody else is there to blame
        raise RuntimeError("gloo")


def _rank(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    value = torch.tensor([float(rank + 1)])
    mean = all_mean(value)
    rows = all_gather_rows(torch.full((rank + 1, 2), float(rank)))
    means = all_means([value, torch.full((2, 2), 4.0 * rank)])
    said = from_first_rank(lambda: {"from": rank, "tensor": torch.ones(2)})
    errors = []
    for attempt in (_refuse, _lose_peer):
        try:
            attempt(rank)
        except (InputError, OperationError) as error:
            errors.append(str(error))
    torch.save((world_size(), value, mean, all_reduce(value.clone()), rows), Path(folder) / f"{rank}.pt")
    torch.save((means, said, errors), Path(folder) / f"{rank}-more.pt")
    dist.destroy_process_group()


def _refuse(rank):
    def look() -> None:
        raise InputError(f"rank {rank} found nothing")

    from_first_rank(look)


def _lose_peer(rank):
    with together():
        raise RuntimeError("[gloo/pair.cc] Connection closed by peer")


def test_two_ranks_sum_average_and_gather_rows_of_unequal_number(tmp_path):
    multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        size, value, mean, total, rows = torch.load(tmp_path / f"{rank}.pt")
        assert size == 2
        assert value.tolist() == [rank + 1.0], "all_mean must not change its argument"
        assert mean.tolist() == [1.5]
        assert total.tolist() == [3.0]
        assert rows.tolist() == [[0, 0], [1, 1], [1, 1]]
        means, said, errors = torch.load(tmp_path / f"{rank}-more.pt")
        assert [part.tolist() for part in means] == [[1.5], [[2.0, 2.0], [2.0, 2.0]]]
        assert said["from"] == 0
        assert errors[0] == "rank 0 found nothing", "an error of the first rank is raised on all"
        assert errors[1].startswith("another process of this run has ended")
