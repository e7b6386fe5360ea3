"""How figures are called and written, and how far they may be off because the test set is finite."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from icda.metrics.registry import METRICS, OWN_METRICS, Metric
from icda.plugins import PluginError
from icda.report.results import Result, as_number, evaluated_samples, listing, mapping, metric, numbers

NORMAL_95 = 1.959963984540054
DRAWS = 2000

Interval = tuple[float, float]


def figure(name: str) -> Metric:
    """A metric's wording, a plugin's as it declares it; a metric we do not know keeps its name."""
    if name in OWN_METRICS:
        return OWN_METRICS[name]
    declared = Metric(name, percent=name.endswith("accuracy"))
    with contextlib.suppress(PluginError):  # a page of runs needs no plugin of theirs
        declared = METRICS.get(name) if name in METRICS else declared
    return declared if declared.label else replace(declared, label=name)


def heading(name: str) -> str:
    """A metric's label with its unit, for a table's head."""
    return figure(name).label + (" (%)" if figure(name).percent else "")


def percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; blank when nobody measured it."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def metric_text(name: str, value: float | None) -> str:
    """A metric's value with its unit; blank when nobody measured it."""
    if figure(name).percent:
        return percent(value)
    return "" if value is None else f"{value:.3f}"


def mean_and_deviation(name: str, mean: float | None, deviation: float | None) -> str:
    """ "mean ± std" without unit; no ± when there is no deviation worth naming, blank without a mean."""
    scale, digits = (100, 2) if figure(name).percent else (1, 3)
    known = [f"{scale * value:.{digits}f}" for value in (mean, deviation) if value is not None]
    return " ± ".join(known) if mean is not None else ""


def count(value: object) -> str:
    """A number of samples; blank for what is no number."""
    number = as_number(value)
    return "" if number is None else f"{number:,.0f}"


def decimal(value: object, digits: int = 3) -> str:
    """A number with so many places; blank for what is no number."""
    number = as_number(value)
    return "" if number is None else f"{number:.{digits}f}"


def duration(seconds: float | None) -> str:
    """A time span that reads well."""
    if seconds is None:
        return ""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
        interval = bootstrap_mean([share for share, _ in rows], [samples for _, samples in rows])
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
    return [(share, n) for share, n in zip(accuracies, samples, strict=True) if share is not None and n > 0]
