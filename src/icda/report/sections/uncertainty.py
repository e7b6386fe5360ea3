"""Which interval a run's figure gets, and from what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icda.report.intervals import Interval, bootstrap_mean, wilson
from icda.report.results import Result, as_number, listing, mapping, metric
from icda.report.runs import evaluated_samples


@dataclass(frozen=True)
class Uncertainty:
    """An interval and the rule it comes from."""

    interval: Interval
    rule: str

    def text(self) -> str:
        """
        >>> Uncertainty((0.596, 0.982), "Wilson").text()
        '59.6 – 98.2 %'
        """
        low, high = self.interval
        return f"{100 * low:.1f} – {100 * high:.1f} %"


def uncertainty(result: Result, name: str) -> Uncertainty | None:
    """The 95 % interval of a metric of one run; None where the result does not say how many samples it rests on."""
    classes, groups = class_rows(result), group_rows(result)
    if name == "accuracy":
        share, samples = metric(result, name), sum(evaluated_samples(result))
        interval = None if share is None else wilson(share * samples, samples)
        return None if interval is None else Uncertainty(interval, "Wilson")
    if name in ("worst_class_accuracy", "worst_group_accuracy"):
        return _worst(classes if name == "worst_class_accuracy" else groups)
    if name in ("balanced_accuracy", "average_group_accuracy"):
        return _mean(classes if name == "balanced_accuracy" else groups)
    return None


def class_rows(result: Result) -> list[tuple[float, int]]:
    """Accuracy and number of test samples of each class that has any; empty where the numbers are unknown."""
    return _rows(listing(mapping(result, "metrics"), "per_class_accuracy"), evaluated_samples(result))


def group_rows(result: Result) -> list[tuple[float, int]]:
    """The same for groups."""
    accuracies = mapping(mapping(result, "metrics"), "per_group_accuracy")
    samples = [int(as_number(value) or 0) for value in listing(result, "group_samples")]
    return _rows(list(accuracies.values()), samples)


def _rows(accuracies: Sequence[object], samples: Sequence[int]) -> list[tuple[float, int]]:
    if len(accuracies) != len(samples):
        return []
    pairs = ((as_number(accuracy), count) for accuracy, count in zip(accuracies, samples, strict=True))
    return [(share, count) for share, count in pairs if share is not None and count > 0]


def _worst(rows: Sequence[tuple[float, int]]) -> Uncertainty | None:
    if not rows:
        return None
    share, samples = min(rows)
    interval = wilson(share * samples, samples)
    return None if interval is None else Uncertainty(interval, "Wilson")


def _mean(rows: Sequence[tuple[float, int]]) -> Uncertainty | None:
    interval = bootstrap_mean([share for share, _ in rows], [count for _, count in rows])
    return None if interval is None else Uncertainty(interval, "bootstrap within classes or groups for means of them")
