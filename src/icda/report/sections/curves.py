"""How training went, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import Line, line_chart
from icda.report.markup import Markup, element, section
from icda.report.results import Result, as_number, listing

PANELS = (
    ("Accuracy", True, {"train_accuracy": "training", "validation_accuracy": "validation"}),
    ("Loss", False, {"train_loss": "training", "validation_loss": "validation"}),
)


def learning_curve(result: Result, level: int) -> Markup:
    """Accuracy and loss over the epochs; empty without a history."""
    history = [entry for entry in listing(result, "history") if isinstance(entry, Mapping)]
    drawn = []
    for title, percent, keys in PANELS:
        lines = [line for key, label in keys.items() if (line := _line(history, key, label))]
        if lines:
            chart = line_chart(f"{title} over epochs", lines, percent)
            drawn.append(element("figure", element("figcaption", title), chart))
    return section("Learning curve", level, element("div", *drawn, class_="panels")) if drawn else Markup("")


def _line(history: Sequence[Mapping[str, Any]], key: str, label: str) -> Line | None:
    points = []
    for position, entry in enumerate(history):
        epoch = as_number(entry.get("epoch"))
        points.append((float(position) if epoch is None else epoch, as_number(entry.get(key))))
    return Line(label, points) if any(y is not None for _, y in points) else None
