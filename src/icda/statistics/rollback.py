"""State that comes back when a call is refused after it was changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Rollback:
    """The buffers of a module as they are now, to be put back with `restore`.

    It copies all of them, so it is made only for batches whose outcome is in doubt.

    >>> module = nn.BatchNorm1d(1)
    >>> before = Rollback(module)
    >>> _ = module(torch.ones(2, 1))
    >>> before.restore()
    >>> module.running_mean, module.num_batches_tracked
    (tensor([0.]), tensor(0))
    """

    def __init__(self, module: nn.Module) -> None:
        self._saved: list[tuple[nn.Module, str, Tensor, Tensor]] = [
            (part, name, buffer, buffer.detach().clone())
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]

    @torch.no_grad()
    def restore(self) -> None:
        for part, name, buffer, values in self._saved:
            if not torch.equal(buffer, values):  # one that is as it was may be part of an earlier call's graph
                buffer.copy_(values)
            part._buffers[name] = buffer


def holds_only_finite_values(module: nn.Module) -> bool:
    return all(bool(torch.isfinite(buffer).all()) for buffer in module.buffers())
