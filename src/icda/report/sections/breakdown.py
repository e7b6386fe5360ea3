"""Accuracy class by class and group by group."""

from __future__ import annotations

from collections.abc import Sequence

from icda.report.charts import bar
from icda.report.formatting import percent
from icda.report.markup import Markup, element, section, table
from icda.report.results import Result, as_number, class_name, listing, mapping

SHOWN_AT_ONCE = 30
WORST_SHOWN = 15
ABSENT = "no sample in this split"

Row = tuple[str, float | None, float | None]  # name, accuracy, training samples


def per_class(result: Result, level: int) -> Markup:
    """A row and a bar for each class; with many classes the worst come first and the rest on demand."""
    accuracies = [as_number(value) for value in listing(mapping(result, "metrics"), "per_class_accuracy")]
    if not accuracies:
        return Markup("")
    counts = [as_number(value) for value in listing(result, "class_counts")]
    counts += [None] * (len(accuracies) - len(counts))
    rows = [(class_name(result, i), value, counts[i]) for i, value in enumerate(accuracies)]
    if len(rows) <= SHOWN_AT_ONCE:
        return section("Accuracy per class", level, _bars("Accuracy of each class", "Class", rows))
    worst = sorted((row for row in rows if row[1] is not None), key=lambda row: row[1] or 0.0)[:WORST_SHOWN]
    return section(
        "Accuracy per class",
        level,
        _bars(f"The {len(worst)} worst of {len(rows)} classes", "Class", worst),
        element("details", element("summary", f"All {len(rows)} classes"), _bars("Every class", "Class", rows)),
    )


def per_group(result: Result, level: int) -> Markup:
    """A row and a bar for each group; empty when the run had no groups."""
    accuracies = mapping(mapping(result, "metrics"), "per_group_accuracy")
    if not accuracies:
        return Markup("")
    rows = [(str(name), as_number(value), None) for name, value in accuracies.items()]
    return section("Accuracy per group", level, _bars("Accuracy of each group", "Group", rows))


def _bars(caption: str, what: str, rows: Sequence[Row]) -> Markup:
    counted = any(count is not None for *_, count in rows)
    header = [what, *(["Training samples"] if counted else []), "Accuracy", element("span", "Bar", class_="unseen")]
    body = []
    for name, accuracy, count in rows:
        counts = [f"{count:,.0f}" if count is not None else ""] if counted else []
        shown = ["", element("small", ABSENT)] if accuracy is None else [percent(accuracy), bar(accuracy)]
        body.append([name, *counts, *shown])
    return element("div", table(caption, header, body), class_="bars")
