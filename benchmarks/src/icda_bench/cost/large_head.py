"""Heads of very many classes: time of a step and peak memory, each in a process of its own."""

import statistics
import time
from collections.abc import Sequence

from icda_bench.cost.child import in_child, peak_mib
from icda_bench.options import OneFile
from icda_bench.rows import Row, publish

WAYS = ("cross entropy", "icda", "icda, sampled", "icda, sampled, low rank")
GRID = tuple((classes, features) for features in (64, 384) for classes in (10_000, 50_000, 100_000))
BATCH, STEPS, NEGATIVES, RANK = 128, 12, 1024, 4


def measure_large_heads(
    grid: Sequence[tuple[int, int]] = GRID, ways: Sequence[str] = WAYS, steps: int = STEPS
) -> list[Row]:
    """One child per way and size."""
    rows = []
    for classes, features in grid:
        for way in ways:
            rows.append(in_child(train_head, way, classes, features, steps))
            print("{way}, {classes} x {features}: {ms:.0f} ms, peak {peak_mib:.0f} MiB".format(**rows[-1]))
    return rows


def train_head(way: str, classes: int, features: int, steps: int) -> Row:
    """Training steps of a head on its own: forward, loss with statistics, backward, SGD with momentum.

    `peak_mib` is the largest resident memory of this process, `imports_mib` what it had before it made the head;
    `bytes_per_number` is the difference over C x A: how many bytes each weight costs in all. `loss_first` and `loss_last`
    are those of one repeated batch, to show that it is learned.
    """
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F

    from icda.losses import ICDALoss, SampledICDALoss

    imports = peak_mib()
    torch.manual_seed(0)
    head = nn.Linear(features, classes)
    inputs, targets = torch.randn(BATCH, features), torch.randint(classes, (BATCH,))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    options = {"covariance": "low_rank", "rank": RANK} if "low rank" in way else {"covariance": "diagonal"}
    counts = torch.full((classes,), 10)
    loss: ICDALoss | None = None
    if "sampled" in way:
        loss = SampledICDALoss(classes, features, counts, negatives=NEGATIVES, **options)
    elif way == "icda":
        loss = ICDALoss(classes, features, counts, **options)

    def step(progress: float) -> Tensor:
        optimizer.zero_grad()
        if loss is None:
            value = F.cross_entropy(head(inputs), targets)
        else:
            value = loss(inputs, targets, head, progress)
        value.backward()
        optimizer.step()
        return value.detach()

    values, seconds = [], []
    for number in range(steps):
        start = time.perf_counter()
        values.append(float(step(number / steps)))
        seconds.append(time.perf_counter() - start)
    peak = peak_mib()
    return {
        **{"way": way, "classes": classes, "features": features, "batch": BATCH},
        "ms": round(1e3 * statistics.median(seconds[2:] or seconds), 1),
        "imports_mib": round(imports, 1),
        "peak_mib": round(peak, 1),
        "bytes_per_number": round((peak - imports) * 2**20 / (classes * features), 1),
        "loss_first": round(values[0], 3),
        "loss_last": round(values[-1], 3),
    }


def run(options: OneFile) -> None:
    publish("large-head", measure_large_heads(), options.out)
