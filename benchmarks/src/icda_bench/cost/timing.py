"""Seconds of steps that take turns, and how a terminal shows them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.table import Table

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


def quartiles(ratios: list[float]) -> str:
    """The quartiles of paired ratios: how far the machine's own noise goes.

    >>> quartiles([1.0, 2.0, 3.0])
    '1.500 to 2.500'
    """
    if len(ratios) < 2:
        return ""
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{low:.3f} to {high:.3f}"


def narrow_table(title: str, titles: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> Table:
    """A table for a terminal of 80 columns: the first column may wrap, figures stand right."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(titles[0], min_width=9)
    for column in titles[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
