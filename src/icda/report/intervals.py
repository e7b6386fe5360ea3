"""How far a figure may be off because the test set is finite, and which interval a run's figure gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from icda.report.results import Result, evaluated_samples, listing, mapping, metric, numbers

NORMAL_95 = 1.959963984540054
DRAWS = 2000

Interval = tuple[float, float]


def wilson(right: float, samples: float) -> Interval | None:
    """Wilson's 95 % interval of a share; None without samples, or for what is no share of them.

    Unlike mean ± 1.96 standard errors it stays inside [0, 1] and is wide where all or none are right. Reference: Wilson,
    "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    if samples <= 0 or not 0 <= right <= samples:
        return None
    share, z2 = right / samples, NORMAL_95**2
    centre = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = NORMAL_95 / (1 + z2 / samples) * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples**2))
    # Exact at the ends, where rounding would leave 0.9999...
    return (0.0 if right == 0 else centre - half), (1.0 if right == samples else centre + half)


def bootstrap_mean(shares: Sequence[float], samples: Sequence[int]) -> Interval | None:
    """A 95 % percentile interval of a mean of shares, by drawing each class's (or group's) samples again.

    Samples are drawn with replacement within each class, 2000 times with a fixed seed. That a class's samples are right
    or wrong is all that counts, so a draw is a binomial number. None if a class has no samples.
    """
    if not shares or len(shares) != len(samples) or min(samples) <= 0:
        return None
    counts = np.asarray(samples)
    drawn = np.random.default_rng(0).binomial(counts, np.clip(shares, 0.0, 1.0), size=(DRAWS, len(counts))) / counts
    low, high = np.quantile(drawn.mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Uncertainty:
    """An interval and the rule it comes from."""

    interval: Interval
    rule: str

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * low:.1f} – {100 * high:.1f} %"


def uncertainty(result: Result, name: str) -> Uncertainty | None:
    """The 95 % interval of a metric of one run; None where the result does not say how many samples it rests on."""
    interval, rule = None, "Wilson"
    if name == "accuracy" and (share := metric(result, name)) is not None:
        samples = sum(evaluated_samples(result))
        interval = wilson(share * samples, samples)
    elif name.startswith("worst_") and (rows := _rows(result, name)):
        share, samples = min(rows)
        interval = wilson(share * samples, samples)
    elif name in ("balanced_accuracy", "average_group_accuracy") and (rows := _rows(result, name)):
        interval = bootstrap_mean([share for share, _ in rows], [count for _, count in rows])
        rule = "bootstrap within classes or groups for means of them"
    return None if interval is None else Uncertainty(interval, rule)


def _rows(result: Result, name: str) -> list[tuple[float, int]]:
    """Accuracy and number of test samples of each class or group that has any; empty where the numbers are unknown."""
    metrics = mapping(result, "metrics")
    if "group" in name:
        reported = {"accuracies": list(mapping(metrics, "per_group_accuracy").values())}
        samples = [int(value or 0) for value in numbers(result, "group_samples")]
    else:
        reported, samples = {"accuracies": listing(metrics, "per_class_accuracy")}, evaluated_samples(result)
    accuracies = numbers(reported, "accuracies")
    if len(accuracies) != len(samples):
        return []
    return [(share, count) for share, count in zip(accuracies, samples, strict=True) if share is not None and count > 0]
