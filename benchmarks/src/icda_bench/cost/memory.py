"""Peak memory of a piece of torch code on a CPU, counted at the allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


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
