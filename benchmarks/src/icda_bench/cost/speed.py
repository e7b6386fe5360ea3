"""Time and memory of a loss against plain cross entropy, as ratios of interleaved steps."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.losses import AdjustedLoss, ICDALoss
from icda.losses.augmented import StatisticsLoss
from icda.models import create_model
from icda_bench.cost.measures import Ratios, Step, count_operations, interleave, matrix_rate, peak_bytes
from icda_bench.cost.peers import PeersISDA
from icda_bench.rows import Row, publish

FUSED = "icda, no logits"
PEERS = "isda, N x C x A"
PEERS_BYTES = 2**29  # largest of their tensors that is still measured
HEAD_GRID = ((10, 64), (100, 64), (1000, 64), (10_000, 64), (1000, 512), (1000, 2048), (10_000, 512))


@dataclass
class Arguments:
    """Measure training steps and heads, ICDA and cross entropy taking turns in one process."""

    steps: int = 15
    """Timed steps of each method; the median is reported."""
    model: str = "resnet32"
    """Network of the whole-step measurement."""
    batch_size: int = 128
    """Its batch size."""
    grid: bool = True
    """Measure the table over classes and features too."""
    meta: bool = False
    """Measure Meta-ICDA's look-ahead instead, beside the textbook's double backward."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/speed.csv is ours)."""


def measure_speed(model: str, batch_size: int, rounds: int, grid: bool) -> list[Row]:
    """Whole training steps for C = 10 and 100, the large diagonal head, and a grid over C and A."""
    rows = []
    for classes in (10, 100):
        print(f"{model}, batch {batch_size}, {classes} classes: training steps")
        rows += network_rows(model, classes, batch_size, rounds)
        print(f"head alone: {classes} classes, 64 features, batch {batch_size}, full")
        rows += head_rows(classes, 64, batch_size, "full", rounds)
    print("head alone: 1000 classes, 2048 features, batch 64, diagonal")
    rows += head_rows(1000, 2048, 64, "diagonal", rounds)
    if grid:
        for classes, features in HEAD_GRID:
            print(f"head alone: {classes} classes, {features} features, batch 128, diagonal")
            rows += head_rows(classes, features, 128, "diagonal", rounds)
    print("matrix products of 1024 x 1024, for the machine's limit")
    return with_limits(rows, matrix_rate())


def with_limits(rows: list[Row], rate: float) -> list[Row]:
    """The rows with what their matrix products alone would take at `rate` operations per second."""
    return [{**row, "limit_ms": round(1e12 * row["gflop"] / rate, 4)} for row in rows]


def network_rows(model: str, classes: int, batch_size: int, rounds: int) -> list[Row]:
    """Full training steps: forward, loss with statistics, backward, optimiser."""
    steps, loss = training_steps(model, classes, batch_size)
    sizes = (loss.statistics.kind, classes, loss.feature_dim, batch_size)
    times = interleave(steps, rounds)
    return [_row((f"{model} step", "icda", *sizes), times["ce"], times["icda"], steps["icda"])]


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


def head_rows(classes: int, features: int, batch: int, covariance: str, rounds: int) -> list[Row]:
    """Forward and backward of the head alone, gradients for features and weights.

    "head" is what `icda train` and the integrations run: the network has made the logits, and the loss gets them. With
    diagonal covariances the loss is faster when it makes them itself: "head, no logits". With full ones ISDA stands beside
    it as public code has it, where its tensors fit: "head, N x C x A".
    """
    fits = 4 * batch * classes * max(classes, features) <= PEERS_BYTES
    steps = head_steps(classes, features, batch, covariance, peers=covariance == "full" and fits)
    times, sizes = interleave(steps, rounds), (covariance, classes, features, batch)
    rows = []
    for name, what in {
        "icda": ("head", "icda"),
        FUSED: ("head, no logits", "icda"),
        PEERS: ("head, N x C x A", "isda"),
    }.items():
        if name in steps:
            extra = (peak_bytes(steps[name]) - peak_bytes(steps["ce"])) / 2**20
            rows.append(_row((*what, *sizes), times["ce"], times[name], steps[name], round(extra, 1)))
    return rows


def head_steps(classes: int, features: int, batch: int, covariance: str, peers: bool = False) -> dict[str, Step]:
    """Forward and backward of a head with cross entropy and with ICDA, on the same features.

    With diagonal covariances there is a third step, the fused path, which a loss takes that is given no logits; with
    `peers` ISDA as public code has it.
    """
    torch.manual_seed(0)
    head = nn.Linear(features, classes)
    inputs = torch.rand(batch, features, requires_grad=True)
    targets = torch.randint(classes, (batch,))
    loss = ICDALoss(classes, features, torch.full((classes,), 10), covariance=covariance)

    def step(value: Callable[[], Tensor]) -> None:
        head.zero_grad()
        inputs.grad = None
        value().backward()

    values: dict[str, Callable[[], Tensor]] = {
        "ce": lambda: F.cross_entropy(head(inputs), targets),
        "icda": lambda: loss(inputs, targets, head, 0.5, head(inputs)),
    }
    if covariance == "diagonal":
        values[FUSED] = lambda: loss(inputs, targets, head, 0.5)
    if peers:
        isda = PeersISDA(classes, features)
        values[PEERS] = lambda: isda(inputs, targets, head, 0.5, head(inputs))
    return {name: partial(step, value) for name, value in values.items()}


def _row(
    what: tuple[str, str, str, int, int, int],
    base: list[float],
    seconds: list[float],
    step: Step,
    extra: float | None = None,
) -> Row:
    """Median milliseconds of cross entropy and of the loss, the median of paired ratios with its quartiles (how far the
    machine's own noise goes), extra memory in MiB, and the operations of the matrix products, forward and backward."""
    ratios = Ratios.of(base, seconds)
    return {
        **dict(zip(("what", "method", "covariance", "classes", "features", "batch"), what, strict=True)),
        "base_ms": round(1e3 * statistics.median(base), 3),
        "method_ms": round(1e3 * statistics.median(seconds), 3),
        "ratio": round(ratios.middle, 4),
        "extra_mib": extra,
        "quartiles": ratios.text(),
        "gflop": round(count_operations(step) / 1e9, 5),
    }


def run(options: Arguments) -> None:
    from icda_bench.cost.meta_speed import measure_meta_speed

    if options.meta:
        publish("meta-speed", measure_meta_speed(options.model, options.batch_size, 10, options.steps), options.out)
    else:
        publish("speed", measure_speed(options.model, options.batch_size, options.steps, options.grid), options.out)
