"""Metrics by name: which way is better, what they are called, and figures from outside beside our own."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    """

    name: str
    compute: Callable[[Predictions], float | None] | None = None
    higher_is_better: bool = True
    needs_groups: bool = False
    label: str = ""
    percent: bool = False  # whether reports show it in per cent
    meaning: str = ""


METRICS: Registry[Metric] = Registry("metric", "icda.metrics", "icda.metrics", Metric)

_WEIGHTED = "per-group accuracies weighted by each group's share of the training set"
_OWN = (
    ("accuracy", "Accuracy", "share of all samples that are right"),
    ("balanced_accuracy", "Balanced accuracy", "mean of the per-class accuracies"),
    ("worst_class_accuracy", "Worst class", "lowest per-class accuracy"),
    ("worst_group_accuracy", "Worst group", "lowest per-group accuracy"),
    ("average_group_accuracy", "Group average", "mean of the per-group accuracies"),
    ("train_weighted_accuracy", "Train-weighted", _WEIGHTED),
    ("many_accuracy", "Many-shot", "mean over classes with many training samples (over 100 unless set)"),
    ("medium_accuracy", "Medium-shot", "mean over classes in between (20 to 100 unless set)"),
    ("few_accuracy", "Few-shot", "mean over classes with few training samples (under 20 unless set)"),
    ("macro_precision", "Macro precision", "share of right predictions, mean over classes"),
    ("calibration_error", "Calibration error", "gap between confidence and accuracy, 15 bins"),
    ("nll", "Negative log-likelihood", "mean of −log p(true class)"),
)
OWN_METRICS: dict[str, Metric] = {}  # in the order in which reports show them
for _name, _label, _meaning in _OWN:
    OWN_METRICS[_name] = METRICS.register(_name)(
        Metric(
            _name,
            higher_is_better=_name not in ("calibration_error", "nll"),
            needs_groups="group" in _name or _name == "train_weighted_accuracy",
            label=_label,
            percent=_name != "nll",
            meaning=_meaning,
        )
    )


def metric(name: str, **settings: Any) -> Callable[[Callable[[Predictions], float | None]], Metric]:
    """Make a function of `Predictions` a Metric. Registering it is `METRICS.register(name)`, or an entry point.

    `settings` are those of Metric. The first line of the docstring says what it means, if nothing else does.

    >>> @metric("confident_share", label="Confident", percent=True)
    ... def confident_share(predictions):
    ...     "The share of samples with a probability above 0.9."
    ...     return predictions.logits.softmax(1).amax(1).gt(0.9).float().mean().item()
    >>> confident_share.meaning
    'The share of samples with a probability above 0.9.'
    """

    def decorate(compute: Callable[[Predictions], float | None]) -> Metric:
        first_line = (compute.__doc__ or "").strip().split("\n")[0]
        return Metric(name, compute, **{"meaning": first_line, **settings})

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
        if metric.compute is not None:
            known = not metric.needs_groups or predictions.groups is not None
            figures[name] = _figure(name, metric.compute, predictions) if known else None
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
