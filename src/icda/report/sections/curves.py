"""How training went, epoch by epoch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import Line, line_chart
from icda.report.markup import Markup, element, section
from icda.report.results import Result, as_number, listing
from icda.report.runs import Run

PANELS = (
    ("Accuracy", True, {"train_accuracy": "training", "validation_accuracy": "validation"}),
    (
        "Worst class and group on validation data",
        True,
        {"validation_worst_class_accuracy": "worst class", "validation_worst_group_accuracy": "worst group"},
    ),
    ("Loss", False, {"train_loss": "training", "validation_loss": "validation"}),
    (
        "Strength given to right and wrong labels",
        False,
        {"strength_right_labels": "right", "strength_wrong_labels": "wrong"},
    ),
    (
        "Strength given to the largest group of a class and to the others",
        False,
        {"strength_majority": "largest group", "strength_minority": "others"},
    ),
    (
        "Strength given to large and small classes",
        False,
        {"strength_large_classes": "above the median size", "strength_small_classes": "below it"},
    ),
    (
        "AUROC of the strength",
        True,
        {"strength_auroc_wrong": "low: wrong label", "strength_auroc_minority": "high: not the largest group"},
    ),
)
OVERLAID = (
    ("Validation accuracy", True, "validation_accuracy"),
    ("Worst class on validation data", True, "validation_worst_class_accuracy"),
    ("Training accuracy", True, "train_accuracy"),
    ("Training loss", False, "train_loss"),
)

MEANS = "Each line is the mean over the runs of a method."


def learning_curve(run: Run, level: int) -> Markup:
    """Accuracy and loss over the epochs; empty without a history."""
    history = _history(run.result)
    drawn = []
    for title, percent, keys in PANELS:
        lines = [line for key, label in keys.items() if (line := _line(history, key, label))]
        if lines:
            chart = line_chart(f"{title} over epochs", lines, percent)
            drawn.append(element("figure", element("figcaption", title), chart))
    return section("Learning curve", level, element("div", *drawn, class_="panels")) if drawn else Markup("")


def learning_curves(runs: Sequence[Run], level: int) -> Markup:
    """Methods overlaid, a panel for each task and figure; the mean where a method ran on several seeds."""
    grouped = _by_task_and_label([run.result for run in runs])
    blocks = []
    for task, methods in grouped.items():
        drawn = []
        for title, percent, key in OVERLAID:
            lines = [line for name, results in methods.items() if (line := _mean_line(results, key, name))]
            if lines:
                chart = line_chart(f"{title} over epochs, {task}", lines, percent)
                drawn.append(element("figure", element("figcaption", title), chart))
        if drawn:
            heading = element(f"h{level + 1}", task) if len(grouped) > 1 else ""
            blocks.append(element("div", heading, element("div", *drawn, class_="panels"), class_="block"))
    note = "" if len(runs) == sum(map(len, grouped.values())) else element("p", MEANS, class_="note")
    return section("Learning curves", level, *blocks, note) if blocks else Markup("")


def _by_task_and_label(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Results of each task and line: a line per method, or a line per seed where all runs are of one method."""
    one_method = len({str(result["method"]) for result in results}) == 1
    grouped: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        label = f"seed {result.get('seed')}" if one_method else str(result["method"])
        grouped.setdefault(str(result["task"]), {}).setdefault(label, []).append(result)
    return grouped


def _history(result: Result) -> list[Mapping[str, Any]]:
    return [entry for entry in listing(result, "history") if isinstance(entry, Mapping)]


def _line(history: Sequence[Mapping[str, Any]], key: str, label: str) -> Line | None:
    points = []
    for position, entry in enumerate(history):
        epoch = as_number(entry.get("epoch"))
        points.append((float(position) if epoch is None else epoch, as_number(entry.get(key))))
    return Line(label, points) if any(y is not None for _, y in points) else None


def _mean_line(results: Sequence[Result], key: str, label: str) -> Line | None:
    """The mean over runs at each epoch that any of them has a value for."""
    values: dict[float, list[float]] = {}
    for result in results:
        line = _line(_history(result), key, label)
        for x, y in line.points if line else ():
            if y is not None:
                values.setdefault(x, []).append(y)
    if not values:
        return None
    xs = sorted(values)
    spread = [statistics.stdev(values[x]) if len(values[x]) > 1 else None for x in xs]
    return Line(label, [(x, statistics.fmean(values[x])) for x in xs], spread)
