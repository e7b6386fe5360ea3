"""`icda bench`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from icda.registry import nearest

BENCHES = {"speed": "time and memory of losses against plain cross entropy, interleaved in one process"}


@dataclass
class SpeedArguments:
    """Measure training steps and heads, ICDA and cross entropy taking turns in one process."""

    steps: int = 15
    """Timed steps of each method; the median is reported."""
    model: str = "resnet32"
    """Network of the whole-step measurement."""
    batch_size: int = 128
    """Its batch size."""
    grid: bool = True
    """Measure the table over classes and features too."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/speed.csv is ours)."""


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: icda bench NAME [OPTIONS]\n")
        for name, summary in BENCHES.items():
            print(f"  {name}  {summary}")
        return 0
    if arguments[0] not in BENCHES:
        guess = nearest(arguments[0], BENCHES)
        hint = f" Did you mean {guess!r}?" if guess else ""
        print(f"icda: unknown bench {arguments[0]!r}.{hint} Known: {', '.join(BENCHES)}.", file=sys.stderr)
        return 2
    return _speed(arguments[1:])


def _speed(arguments: Sequence[str]) -> int:
    given = tyro.cli(SpeedArguments, args=list(arguments), prog="icda bench speed")
    from icda.bench.speed import measure_speed, to_table, write_csv

    console = Console()
    rows = measure_speed(given.model, given.batch_size, given.steps, given.grid, console.print)
    console.print(to_table(rows))
    if given.out is not None:
        write_csv(rows, given.out)
        console.print(f"Written to {given.out}", highlight=False)
    return 0
