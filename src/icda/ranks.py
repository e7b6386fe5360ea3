"""Sums, means and lists over the processes of a distributed run; with one process nothing happens."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


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
