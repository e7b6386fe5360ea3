"""What ICDA adds to a training step of the networks of the paper's table 3.

    python -m icda.bench.step_cost benchmarks/results/step_cost.csv    # about seven minutes on two idle cores

A step of a large network takes seconds and its loss milliseconds, so the machine's own unrest may exceed what is looked
for. Hence three figures a row: the ratio of whole steps, the loss alone divided by the step, and the latter scaled to the
paper's batch of 128, since part of the loss (covariances) costs the same whatever the batch.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from icda.bench.speed import head_steps, interleave, training_steps, write_csv
from icda.models import create_model
from icda.registry import UnknownNameError

PAPER_BATCH = 128
HEAD_ROUNDS = 15
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class PaperNetwork:
    """A row of table 3: additional cost in per cent on CIFAR-10 and CIFAR-100, and the batch that we measure with."""

    ten: float
    hundred: float
    batch: int

    def percent(self, classes: int) -> float | None:
        return {10: self.ten, 100: self.hundred}.get(classes)


PAPER = {
    "resnet32": PaperNetwork(6.9, 6.9, batch=64),
    "resnet56": PaperNetwork(7.1, 7.2, batch=64),
    "resnet110": PaperNetwork(6.8, 6.7, batch=32),
    "densenet_bc_121": PaperNetwork(5.6, 5.3, batch=16),
    "densenet_bc_265": PaperNetwork(5.3, 5.1, batch=8),
    "wrn_16_8": PaperNetwork(6.8, 7.0, batch=16),
    "wrn_28_10": PaperNetwork(6.7, 6.8, batch=16),
}


@dataclass(frozen=True)
class StepCostRow:
    """What ICDA adds to cross entropy, in per cent of a step with cross entropy.

    `direct` is the median of the paired ratios of whole steps, `low` and `high` their quartiles; `head` is the extra time
    of the loss alone over that step, and `head_at_128` the same for batches of 128, the step scaled up. `rounds` steps of
    each were timed. `paper` is table 3's figure, None for a network or a number of classes that is not in it.
    """

    network: str
    parameters: int
    classes: int
    features: int
    covariance: str
    batch: int
    rounds: int
    ce_ms: float
    icda_ms: float
    head_extra_ms: float
    direct: float
    low: float
    high: float
    head: float
    head_at_128: float
    paper: float | None


def measure_step_cost(
    models: Sequence[str] = tuple(PAPER),
    batch_size: int | None = None,
    steps: int = 15,
    *,
    classes: Sequence[int] = (10, 100),
    seconds: float = 20.0,
    say: Callable[[str], None] = lambda line: None,
) -> list[StepCostRow]:
    """A row for every network and number of classes; networks outside table 3 want a `batch_size`.

    `steps` of each loss are timed, taking turns, or as many as `seconds` allow, three at least.
    """
    for name in models:
        if name not in PAPER and batch_size is None:
            raise UnknownNameError(
                f"{name!r} is not in table 3 ({', '.join(PAPER)}): give a batch_size to measure it all the same."
            )
    if batch_size is not None and batch_size < 2:
        raise ValueError(f"batch_size must be 2 or more (BatchNorm), got {batch_size}.")
    if steps < FEWEST_ROUNDS or not seconds > 0:
        raise ValueError(f"steps must be {FEWEST_ROUNDS} or more and seconds positive, got {steps} and {seconds}.")
    rows = []
    for name in models:
        batch = batch_size or PAPER[name].batch
        for number in classes:
            say(f"{name}, batch {batch}, {number} classes")
            rows.append(_measure(name, number, batch, steps, seconds))
    return rows


def _measure(name: str, classes: int, batch: int, steps: int, seconds: float) -> StepCostRow:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that covariances are diagonal stands in the row
        turns, loss = training_steps(name, classes, batch)
    times = interleave(turns, rounds=1, warm_up=1)
    rounds = rounds_within(seconds, sum(values[0] for values in times.values()), steps)
    for key, values in interleave(turns, rounds - 1, warm_up=0).items():
        times[key] += values
    ratios = [100 * (b / a - 1) for a, b in zip(times["ce"], times["icda"], strict=True)]
    low, direct, high = statistics.quantiles(ratios, n=4, method="inclusive")
    step, kind = statistics.median(times["ce"]), loss.statistics.kind
    head, head_at_128 = (head_extra_seconds(classes, loss.feature_dim, size, kind) for size in (batch, PAPER_BATCH))
    parameters = sum(value.numel() for value in create_model(name, classes, (3, 32, 32)).parameters())
    paper = PAPER[name].percent(classes) if name in PAPER else None
    return StepCostRow(
        network=name,
        parameters=parameters,
        classes=classes,
        features=loss.feature_dim,
        covariance=kind,
        batch=batch,
        rounds=rounds,
        ce_ms=round(1e3 * step, 2),
        icda_ms=round(1e3 * statistics.median(times["icda"]), 2),
        head_extra_ms=round(1e3 * head, 3),
        direct=round(direct, 2),
        low=round(low, 2),
        high=round(high, 2),
        head=round(100 * head / step, 3),
        head_at_128=round(100 * head_at_128 / (step * PAPER_BATCH / batch), 3),
        paper=paper,
    )


def rounds_within(seconds: float, one: float, steps: int) -> int:
    """How many rounds to time when one takes `one` seconds.

    >>> rounds_within(20, one=0.1, steps=15), rounds_within(20, one=4.0, steps=15), rounds_within(20, one=60, steps=15)
    (15, 5, 3)
    """
    return max(FEWEST_ROUNDS, min(steps, int(seconds / one)))


def head_extra_seconds(classes: int, features: int, batch: int, covariance: str) -> float:
    """The median of paired differences between ICDA and cross entropy on given features, without a network."""
    times = interleave(head_steps(classes, features, batch, covariance), HEAD_ROUNDS)
    return statistics.median(b - a for a, b in zip(times["ce"], times["icda"], strict=True))


def to_step_cost_table(rows: Sequence[StepCostRow]) -> Table:
    """The rows for a terminal, the paper's figures in a column of their own."""
    titles = ("network", "M", "C", "A", "covariance", "N", "CE ms", "ICDA ms", "direct %", "quartiles")
    table = Table(*titles, "loss alone %", "at N = 128 %", "paper %", title="what ICDA adds to a training step")
    for row in rows:
        sizes = (row.classes, row.features, row.covariance, row.batch, row.ce_ms, row.icda_ms, row.direct)
        figures = (f"{row.low} to {row.high}", str(row.head), str(row.head_at_128))
        paper = "" if row.paper is None else str(row.paper)
        table.add_row(row.network, f"{row.parameters / 1e6:.1f}", *map(str, sizes), *figures, paper)
    return table


def main(arguments: Sequence[str]) -> int:
    console = Console()
    rows = measure_step_cost(say=lambda line: console.print(line, highlight=False))
    console.print(to_step_cost_table(rows))
    if arguments:
        write_csv(rows, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
