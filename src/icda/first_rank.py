"""The process of a distributed run that writes and speaks for all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist

from icda.errors import OperationError
from icda.ranks import world_size

Found = TypeVar("Found")


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
