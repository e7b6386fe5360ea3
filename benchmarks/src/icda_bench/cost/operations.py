"""What a step would take if it were matrix products alone, at the rate this machine multiplies matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

GEMM_SIZE = 1024  # of square matrices, whose product is as near to a core's peak as a product comes
GEMM_ROUNDS = 12


def matrix_rate(size: int = GEMM_SIZE, rounds: int = GEMM_ROUNDS) -> float:
    """Floating-point operations per second of the fastest of some products of square float32 matrices.

    The fastest, not the median: this is the machine's limit, which other processes can only hide.

    >>> matrix_rate(size=64, rounds=2) > 1e6
    True
    """
    left, right = (torch.randn(size, size) for _ in range(2))
    out, fastest = left @ right, float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(left, right, out=out)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * size**3 / fastest


def count_operations(step: Callable[[], None]) -> int:
    """Floating-point operations of the matrix products and convolutions of a step.

    >>> def step() -> None:
    ...     torch.ones(2, 3) @ torch.ones(3, 5)
    >>> count_operations(step)  # 2 * 3 * 5 multiplications and as many additions
    60
    """
    with _Operations() as counter:
        step()
    return counter.total


class _Operations(TorchDispatchMode):
    """torch's own FlopCounterMode, less its count by module, whose hooks `torch.autograd.grad` does not allow."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else func._overloadpacket
        formula = flop_registry.get(packet)  # which has addmm, and not addmm_
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result
