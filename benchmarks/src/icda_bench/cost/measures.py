"""What a step takes: seconds of steps in turn, bytes at the allocator, operations."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

GEMM_SIZE = 1024  # of square matrices, whose product is as near to a core's peak as a product comes
GEMM_ROUNDS = 12
Step = Callable[[], None]


def interleave(steps: dict[str, Step], rounds: int, warm_up: int = 3) -> dict[str, list[float]]:
    """Seconds of each step, taking turns so that a busy moment of the machine strikes all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(warm_up):
        for step in steps.values():
            step()
    gc.disable()
    try:
        names = list(steps)
        for number in range(rounds):
            for place in range(len(names)):
                name = names[(place + number) % len(names)]  # nobody always goes first
                start = time.perf_counter()
                steps[name]()
                times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return times


class Ratios(NamedTuple):
    """Quartiles of the ratios of steps that took turns: the middle one, and how far the machine's own noise goes.

    >>> Ratios.of([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).text()
    '1.500 to 2.500'
    """

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, base: Sequence[float], seconds: Sequence[float]) -> Ratios:
        ratios = [b / a for a, b in zip(base, seconds, strict=True)]
        return cls(*(statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else 3 * ratios))

    def text(self, digits: int = 3) -> str:
        """What is between the quartiles; nothing for a single ratio."""
        return "" if self.low == self.high else f"{self.low:.{digits}f} to {self.high:.{digits}f}"


def peak_bytes(step: Callable[[], None]) -> int:
    """Most bytes of its own that `step` held at once; what stood before it counts neither when used nor when released.

    The profiler reports every allocation and release of torch's CPU allocator, so the figure does not depend on what the
    operating system does with freed pages.

    >>> import torch
    >>> peak_bytes(lambda: torch.zeros(1024).add(1).sum().item() and None) >= 2 * 4096
    True
    """
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    own: dict[int, int] = {}
    held = peak = 0
    for address, size in _memory_events(profiler):
        if size > 0:
            own[address] = size
            held += size
        else:  # the profiler knows the size of memory that stood before only by chance: count what the step made
            held -= own.pop(address, 0)
        peak = max(peak, held)
    return peak


def _memory_events(profiler: profile) -> list[tuple[int, int]]:
    """Address and signed size of all allocations and releases, in the order they happened."""
    recorded: Any = profiler.profiler
    events, waiting = [], list(recorded.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if hasattr(event.extra_fields, "alloc_size"):
            events.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return [(address, size) for _, address, size in sorted(events, key=lambda event: event[0])]


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
