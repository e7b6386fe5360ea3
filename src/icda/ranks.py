"""The processes of a distributed run: sums and lists over them, and the one that writes and speaks for all.

With one process nothing happens.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from icda.errors import OperationError

Found = TypeVar("Found")


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this process is, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def all_reduce(tensor: Tensor) -> Tensor:
    """Sum over ranks, in place; returns the tensor."""
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor


def all_mean(tensor: Tensor) -> Tensor:
    """Mean over ranks, as a new tensor when there are several."""
    if world_size() == 1:
        return tensor
    return all_reduce(tensor.contiguous().clone()) / world_size()


def all_means(tensors: Sequence[Tensor]) -> list[Tensor]:
    """`all_mean` of tensors of one type in one message: gradients are many, and each would wait for an answer."""
    if world_size() == 1 or not tensors:
        return list(tensors)
    whole = all_reduce(torch.cat([tensor.reshape(-1) for tensor in tensors])) / world_size()
    parts = whole.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def all_gather_rows(tensor: Tensor) -> Tensor:
    """The rows of all ranks, one rank after the other; ranks may hold different numbers of rows."""
    if world_size() == 1:
        return tensor
    sizes = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([len(tensor)], device=tensor.device))
    padded = tensor.new_zeros(max(int(size) for size in sizes), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded)
    return torch.cat([part[: int(size)] for part, size in zip(gathered, sizes, strict=True)])


def is_first_rank() -> bool:
    """Whether this process writes and prints for all; torchrun says so before the processes know each other."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def from_first_rank(compute: Callable[[], Found]) -> Found:
    """What `compute` returns on the first rank, for all of them; an error there is raised on all.

    Files of a run lie where the first rank runs: ranks on other machines need not see that folder.
    """
    if world_size() == 1:
        return compute()
    found: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            found[0] = compute()
        except Exception as error:  # all ranks must hear of it, or they would wait for this one
            found[1] = error
    dist.broadcast_object_list(found, src=0)
    if found[1] is not None:
        raise found[1]
    result: Found = found[0]
    return result


@contextmanager
def together() -> Iterator[None]:
    """Inside, ranks compute together: the end of another one is said in a sentence."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise OperationError(
            "another process of this run has ended, or cannot be reached: its own output says why. Start all of them again "
            f"with --resume; they go on from the last checkpoint. ({str(error).splitlines()[0][:200]})"
        ) from error
