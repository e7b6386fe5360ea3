"""Time and memory of a loss against plain cross entropy, as ratios of interleaved steps."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from icda.bench.cost.memory import peak_bytes
from icda.losses import AdjustedLoss, ICDALoss
from icda.losses.augmented import StatisticsLoss
from icda.models import create_model

Step = Callable[[], None]

FUSED = "icda, no logits"
HEAD_GRID = ((10, 64), (100, 64), (1000, 64), (10_000, 64), (1000, 512), (1000, 2048), (10_000, 512))


@dataclass(frozen=True)
class SpeedRow:
    """One comparison: median milliseconds of both, their ratio (median of paired ratios), extra memory in MiB."""

    what: str
    method: str
    covariance: str
    classes: int
    features: int
    batch: int
    base_ms: float
    method_ms: float
    ratio: float
    extra_mib: float | None = None
    quartiles: str = ""  # of the paired ratios: how far the machine's own noise goes


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


def measure_speed(model: str, batch_size: int, rounds: int, grid: bool, say: Callable[[str], None]) -> list[SpeedRow]:
    """Whole training steps for C = 10 and 100, the large diagonal head, and a grid over C and A."""
    rows = []
    for classes in (10, 100):
        say(f"{model}, batch {batch_size}, {classes} classes: training steps")
        rows += network_rows(model, classes, batch_size, rounds)
        say(f"head alone: {classes} classes, 64 features, batch {batch_size}, full")
        rows += head_rows(classes, 64, batch_size, "full", rounds)
    say("head alone: 1000 classes, 2048 features, batch 64, diagonal")
    rows += head_rows(1000, 2048, 64, "diagonal", rounds)
    if grid:
        for classes, features in HEAD_GRID:
            say(f"head alone: {classes} classes, {features} features, batch 128, diagonal")
            rows += head_rows(classes, features, 128, "diagonal", rounds)
    return rows


def network_rows(model: str, classes: int, batch_size: int, rounds: int) -> list[SpeedRow]:
    """Full training steps: forward, loss with statistics, backward, optimiser."""
    steps, loss = training_steps(model, classes, batch_size)
    times = interleave(steps, rounds)
    return [_row(f"{model} step", "icda", loss.statistics.kind, classes, loss.feature_dim, batch_size, times)]


def training_steps(model: str, classes: int, batch_size: int) -> tuple[dict[str, Step], StatisticsLoss]:
    """One network's training step with cross entropy and with ICDA, on the same batch, and the ICDA loss."""
    torch.manual_seed(0)
    network = create_model(model, classes, (3, 32, 32)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
    targets = torch.randint(classes, (batch_size,))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    icda = ICDALoss(classes, network.feature_dim, torch.full((classes,), 100))

    def step(loss: AdjustedLoss | None) -> None:
        optimizer.zero_grad()
        output = network(inputs)
        if loss is None:
            value = F.cross_entropy(output.logits, targets)
        else:
            value = loss(output.features, targets, network.head, 0.5, output.logits)
        value.backward()
        optimizer.step()

    return {"ce": partial(step, None), "icda": partial(step, icda)}, icda


def head_rows(classes: int, features: int, batch: int, covariance: str, rounds: int) -> list[SpeedRow]:
    """Forward and backward of the head alone, gradients for features and weights.

    "head" is what `icda train` and the integrations run: the network has made the logits, and the loss gets them. With
    diagonal covariances the loss is faster when it makes them itself: "head, no logits".
    """
    steps = head_steps(classes, features, batch, covariance)
    times = interleave(steps, rounds)
    rows = []
    for name, what in (("icda", "head"), (FUSED, "head, no logits")):
        if name in steps:
            extra = (peak_bytes(steps[name]) - peak_bytes(steps["ce"])) / 2**20
            pair = {"ce": times["ce"], "icda": times[name]}
            rows.append(_row(what, "icda", covariance, classes, features, batch, pair, extra))
    return rows


def head_steps(classes: int, features: int, batch: int, covariance: str) -> dict[str, Step]:
    """Forward and backward of a head with cross entropy and with ICDA, on the same features.

    With diagonal covariances there is a third step, the fused path, which a loss takes that is given no logits.
    """
    torch.manual_seed(0)
    head = nn.Linear(features, classes)
    inputs = torch.rand(batch, features, requires_grad=True)
    targets = torch.randint(classes, (batch,))
    loss = ICDALoss(classes, features, torch.full((classes,), 10), covariance=covariance)

    def clear() -> None:
        head.zero_grad()
        inputs.grad = None

    def plain() -> None:
        clear()
        F.cross_entropy(head(inputs), targets).backward()

    def adjusted(*, with_logits: bool) -> None:
        clear()
        loss(inputs, targets, head, 0.5, head(inputs) if with_logits else None).backward()

    steps: dict[str, Step] = {"ce": plain, "icda": partial(adjusted, with_logits=True)}
    if covariance == "diagonal":
        steps[FUSED] = partial(adjusted, with_logits=False)
    return steps


def _row(
    what: str,
    method: str,
    covariance: str,
    classes: int,
    features: int,
    batch: int,
    times: dict[str, list[float]],
    extra: float | None = None,
) -> SpeedRow:
    ratios = [b / a for a, b in zip(times["ce"], times[method], strict=True)]
    return SpeedRow(
        what,
        method,
        covariance,
        classes,
        features,
        batch,
        round(1e3 * statistics.median(times["ce"]), 3),
        round(1e3 * statistics.median(times[method]), 3),
        round(statistics.median(ratios), 4),
        None if extra is None else round(extra, 1),
        _quartiles(ratios),
    )


def _quartiles(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return ""
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{low:.3f} to {high:.3f}"


def to_table(rows: list[SpeedRow]) -> Table:
    """The rows for a terminal of 80 columns; a CSV file has all digits."""
    table = Table(title="time against cross entropy", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("step")
    for title in ("C x A, N", "CE ms", "ms", "ratio (quartiles)", "MiB"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        size = f"{row.classes} x {row.features}, {row.batch}"
        low, _, high = row.quartiles.partition(" to ")
        ratio = f"{row.ratio:.2f} ({float(low):.2f} to {float(high):.2f})" if high else f"{row.ratio:.2f}"
        extra = "" if row.extra_mib is None else str(row.extra_mib)
        times = (f"{row.base_ms:.1f}", f"{row.method_ms:.1f}")
        table.add_row(f"{row.what}, {row.method}, {row.covariance}", size, *times, ratio, extra)
    return table
