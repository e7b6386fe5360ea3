"""Metrics by name: which way is better, what they are called, and figures from outside beside our own."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from icda.plugins import PluginError, PluginWarning
from icda.registry import Registry


class Predictions(NamedTuple):
    """What a metric sees of a split: checked, on the CPU. `groups` and counts are None where they are not known."""

    logits: Tensor  # (N, C)
    targets: Tensor  # (N,)
    groups: Tensor | None = None  # (N,)
    train_class_counts: Tensor | None = None  # (C,)


@dataclass(frozen=True)
class Metric:
    """A figure of a split that is one number.

    `compute` is None for our own, which `evaluate_predictions` works out together. It may answer None for a figure that
    cannot be known. `--selection validation_NAME` keeps the epoch where the metric is best.

    >>> share = Metric("share_of_class_0", lambda predictions: predictions.targets.eq(0).float().mean().item())
    >>> share.higher_is_better, share.needs_groups
    (True, False)
    """

    name: str
    compute: Callable[[Predictions], float | None] | None = None
    higher_is_better: bool = True
    needs_groups: bool = False
    label: str = ""
    percent: bool = False  # whether reports show it in per cent
    meaning: str = ""


METRICS: Registry[Metric] = Registry("metric", "icda.metrics", "icda.metrics", Metric)

for _name in ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_precision"):
    METRICS.register(_name)(Metric(_name))
for _name in ("many_accuracy", "medium_accuracy", "few_accuracy"):
    METRICS.register(_name)(Metric(_name))
for _name in ("worst_group_accuracy", "average_group_accuracy", "train_weighted_accuracy"):
    METRICS.register(_name)(Metric(_name, needs_groups=True))
for _name in ("calibration_error", "nll"):
    METRICS.register(_name)(Metric(_name, higher_is_better=False))


def metric(
    name: str,
    *,
    higher_is_better: bool = True,
    needs_groups: bool = False,
    label: str = "",
    percent: bool = False,
    meaning: str = "",
) -> Callable[[Callable[[Predictions], float | None]], Metric]:
    """Make a function of `Predictions` a Metric. Registering it is `METRICS.register(name)`, or an entry point.

    The first line of the docstring says what it means, if nothing else does.

    >>> @metric("confident_share", label="Confident", percent=True)
    ... def confident_share(predictions):
    ...     "The share of samples with a probability above 0.9."
    ...     return predictions.logits.softmax(1).amax(1).gt(0.9).float().mean().item()
    >>> confident_share.meaning
    'The share of samples with a probability above 0.9.'
    """

    def decorate(compute: Callable[[Predictions], float | None]) -> Metric:
        words = meaning or (compute.__doc__ or "").strip().split("\n")[0]
        return Metric(name, compute, higher_is_better, needs_groups, label, percent, words)

    return decorate


def added_metrics(predictions: Predictions) -> dict[str, float | None]:
    """The figures of all metrics from outside. One that fails is left out or None, with a warning; the others stay."""
    figures: dict[str, float | None] = {}
    for name in METRICS:
        try:
            metric = METRICS.get(name)
        except PluginError as error:
            warnings.warn(str(error), PluginWarning, stacklevel=2)
            continue
        if metric.compute is not None and not (metric.needs_groups and predictions.groups is None):
            figures[name] = _figure(name, metric.compute, predictions)
        elif metric.compute is not None:
            figures[name] = None
    return figures


def _figure(name: str, compute: Callable[[Predictions], float | None], predictions: Predictions) -> float | None:
    try:
        value = compute(predictions)
        number = None if value is None else float(value)
    except Exception as error:  # a figure beside others must not end a training
        owner = METRICS.owner(name) or "icda"
        sentence = f"metric {name!r} of {owner} failed and is left blank: {type(error).__name__}: {error}"
        warnings.warn(sentence, PluginWarning, stacklevel=3)
        return None
    return number if number is not None and math.isfinite(number) else None
