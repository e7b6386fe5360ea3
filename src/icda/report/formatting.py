"""How figures are called and written."""

from __future__ import annotations

from dataclasses import dataclass

from icda.metrics.registry import METRICS
from icda.plugins import PluginError
from icda.report.results import as_number


@dataclass(frozen=True)
class Figure:
    """A metric's name for people, whether it is shown in per cent, and what it means."""

    label: str
    percent: bool = True
    meaning: str = ""


FIGURES = {
    "accuracy": Figure("Accuracy", meaning="share of all samples that are right"),
    "balanced_accuracy": Figure("Balanced accuracy", meaning="mean of the per-class accuracies"),
    "worst_class_accuracy": Figure("Worst class", meaning="lowest per-class accuracy"),
    "worst_group_accuracy": Figure("Worst group", meaning="lowest per-group accuracy"),
    "average_group_accuracy": Figure("Group average", meaning="mean of the per-group accuracies"),
    "train_weighted_accuracy": Figure(
        "Train-weighted", meaning="per-group accuracies weighted by each group's share of the training set"
    ),
    "many_accuracy": Figure("Many-shot", meaning="mean over classes with many training samples (over 100 unless set)"),
    "medium_accuracy": Figure("Medium-shot", meaning="mean over classes in between (20 to 100 unless set)"),
    "few_accuracy": Figure("Few-shot", meaning="mean over classes with few training samples (under 20 unless set)"),
    "macro_precision": Figure("Macro precision", meaning="share of right predictions, mean over classes"),
    "calibration_error": Figure("Calibration error", meaning="gap between confidence and accuracy, 15 bins"),
    "nll": Figure("Negative log-likelihood", percent=False, meaning="mean of −log p(true class)"),
}


def figure(name: str) -> Figure:
    """A metric's wording, a plugin's as it declares it; a metric we do not know keeps its name."""
    if name in FIGURES:
        return FIGURES[name]
    try:
        declared = METRICS.get(name) if name in METRICS else None
    except PluginError:  # a page of runs needs no plugin of theirs
        declared = None
    if declared is None:
        return Figure(name, percent=name.endswith("accuracy"))
    return Figure(declared.label or name, declared.percent, declared.meaning)


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
    """A number of samples; blank for what is no number.

    >>> count(1200), count(None)
    ('1,200', '')
    """
    number = as_number(value)
    return "" if number is None else f"{number:,.0f}"


def decimal(value: object, digits: int = 3) -> str:
    """A number with so many places; blank for what is no number.

    >>> decimal(0.12345), decimal("x")
    ('0.123', '')
    """
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
