"""What ICDA adds to a training step of one network.

A step of a large network takes seconds and its loss milliseconds, so the machine's own noise may exceed what is looked
for. Hence three figures: the ratio of whole steps, the loss alone divided by the step, and the latter scaled to the
paper's batch of 128, since part of the loss (covariances) costs the same whatever the batch.
"""

from __future__ import annotations

import statistics
import warnings
from dataclasses import dataclass

from icda.errors import InputError
from icda.models import create_model
from icda_bench.cost.speed import head_steps, training_steps
from icda_bench.cost.timing import interleave

PAPER_BATCH = 128
HEAD_ROUNDS = 15
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class StepCostRow:
    """What ICDA adds to cross entropy, in per cent of a step with cross entropy.

    `direct` is the median of the paired ratios of whole steps, `low` and `high` their quartiles; `head` is the extra time
    of the loss alone over that step, and `head_at_128` the same for batches of 128, the step scaled up. `rounds` steps of
    each were timed.
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


def measure_step(name: str, classes: int, batch: int, steps: int = 15, seconds: float = 20.0) -> StepCostRow:
    """Time `steps` of cross entropy and of ICDA, taking turns, or as many as `seconds` allow, three at least."""
    if batch < 2:
        raise InputError(f"batch must be 2 or more (BatchNorm), got {batch}.")
    if steps < FEWEST_ROUNDS or not seconds > 0:
        raise InputError(f"steps must be {FEWEST_ROUNDS} or more and seconds positive, got {steps} and {seconds}.")
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
