"""Peak memory of a piece of torch code on a CPU, counted at the allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(step: Callable[[], None]) -> int:
    """Most bytes that `step` held at once above what stood before it.

    The profiler reports every allocation and release of torch's CPU allocator, so the figure does not depend on what the
    operating system does with freed pages.

    >>> import torch
    >>> peak_bytes(lambda: torch.zeros(1024).add(1).sum().item() and None) >= 2 * 4096
    True
    """
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    held = peak = 0
    for event in _memory_events(profiler):
        held += event
        peak = max(peak, held)
    return peak


def _memory_events(profiler: profile) -> list[int]:
    """Signed sizes of all allocations and releases, in the order they happened."""
    recorded: Any = profiler.profiler
    events = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return [event.nbytes() for event in events]
