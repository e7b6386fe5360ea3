"""How training went, epoch by epoch."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import Series, line_chart
from icda.report.markup import NOTHING, Markup, captioned, element, note, section
from icda.report.results import Result, Run, as_number, entries

STRENGTH = "Strength given to"
WORST = {"validation_worst_class_accuracy": "worst class", "validation_worst_group_accuracy": "worst group"}
SIZES = {"strength_large_classes": "above the median size", "strength_small_classes": "below it"}
AUROC = {"strength_auroc_wrong": "low: wrong label", "strength_auroc_minority": "high: not the largest group"}
GROUPS = {"strength_majority": "largest group", "strength_minority": "others"}
LABELS = {"strength_right_labels": "right", "strength_wrong_labels": "wrong"}
PANELS = (
    ("Accuracy", True, {"train_accuracy": "training", "validation_accuracy": "validation"}),
    ("Worst class and group on validation data", True, WORST),
    ("Loss", False, {"train_loss": "training", "validation_loss": "validation"}),
    (f"{STRENGTH} right and wrong labels", False, LABELS),
    (f"{STRENGTH} the largest group of a class and to the others", False, GROUPS),
    (f"{STRENGTH} large and small classes", False, SIZES),
    ("AUROC of the strength", True, AUROC),
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
    history = entries(run.result, "history")
    drawn = []
    for title, percent, keys in PANELS:
        lines = [line for key, label in keys.items() if (line := _line(history, key, label))]
        if lines:
            drawn.append(captioned(title, line_chart(f"{title} over epochs", lines, percent)))
    return section("Learning curve", level, element("div", *drawn, class_="panels")) if drawn else NOTHING


def learning_curves(runs: Sequence[Run], level: int) -> Markup:
    """Methods overlaid, a panel for each task and figure; the mean where a method ran on several seeds."""
    grouped = _by_task_and_label([run.result for run in runs])
    blocks = []
    for task, methods in grouped.items():
        drawn = []
        for title, percent, key in OVERLAID:
            lines = [line for name, results in methods.items() if (line := _mean_line(results, key, name))]
            if lines:
                drawn.append(captioned(title, line_chart(f"{title} over epochs, {task}", lines, percent)))
        if drawn:
            heading = element(f"h{level + 1}", task) if len(grouped) > 1 else ""
            blocks.append(element("div", heading, element("div", *drawn, class_="panels"), class_="block"))
    means = "" if len(runs) == sum(map(len, grouped.values())) else MEANS
    return section("Learning curves", level, *blocks, note(means)) if blocks else NOTHING


def _by_task_and_label(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """Results of each task and line: a line per method, or a line per seed where all runs are of one method."""
    one_method = len({str(result["method"]) for result in results}) == 1
    grouped: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        label = f"seed {result.get('seed')}" if one_method else str(result["method"])
        grouped.setdefault(str(result["task"]), {}).setdefault(label, []).append(result)
    return grouped


def _line(history: Sequence[Mapping[str, Any]], key: str, label: str) -> Series | None:
    points = []
    for position, entry in enumerate(history):
        epoch = as_number(entry.get("epoch"))
        points.append((float(position) if epoch is None else epoch, as_number(entry.get(key))))
    return Series(label, points) if any(y is not None for _, y in points) else None


def _mean_line(results: Sequence[Result], key: str, label: str) -> Series | None:
    """The mean over runs at each epoch that any of them has a value for."""
    values: dict[float, list[float]] = {}
    for result in results:
        line = _line(entries(result, "history"), key, label)
        for x, y in line.points if line else ():
            if y is not None:
                values.setdefault(x, []).append(y)
    if not values:
        return None
    xs = sorted(values)
    spread = [statistics.stdev(values[x]) if len(values[x]) > 1 else None for x in xs]
    return Series(label, [(x, statistics.fmean(values[x])) for x in xs], spread)
