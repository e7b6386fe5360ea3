"""Accuracy class by class and group by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from icda.report.charts import Dot, bar, scatter
from icda.report.formatting import count, percent
from icda.report.intervals import wilson
from icda.report.markup import NOTHING, Markup, captioned, element, note, section, table
from icda.report.results import Run, as_number, evaluated_samples, mapping, numbers

SHOWN_AT_ONCE = 30
ABSENT = "no sample in this split"


@dataclass(frozen=True)
class Breakdown:
    """A class or a group: its accuracy, how many samples it was trained and tested on, and its filter's attributes."""

    name: str
    accuracy: float | None
    trained: float | None = None
    tested: float | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)


def per_class(run: Run, level: int) -> Markup:
    """A row and a bar for each class; many classes come worst first, in a box of their own."""
    rows = _class_rows(run)
    if not rows:
        return NOTHING
    many = len(rows) > SHOWN_AT_ONCE
    if many:
        rows.sort(key=lambda row: 2.0 if row.accuracy is None else row.accuracy)
    order = ", worst first" if many else ""
    body = _bars(f"Accuracy of each of {len(rows)} classes{order}", "Class", rows)
    drawn = element("div", body, class_="tall") if many else body
    return section("Accuracy per class", level, _over_size(rows), drawn)


def per_group(run: Run, level: int) -> Markup:
    """A row and a bar for each group; empty when the run had no groups."""
    accuracies = mapping(mapping(run.result, "metrics"), "per_group_accuracy")
    if not accuracies:
        return NOTHING
    samples = numbers(run.result, "group_samples")
    samples += [None] * (len(accuracies) - len(samples))
    rows = []
    for (name, value), tested in zip(accuracies.items(), samples, strict=False):
        rows.append(Breakdown(str(name), as_number(value), None, tested, run.vocabulary.filters(group=name)))
    return section("Accuracy per group", level, _bars("Accuracy of each group", "Group", rows))


def _class_rows(run: Run) -> list[Breakdown]:
    accuracies = numbers(mapping(run.result, "metrics"), "per_class_accuracy")
    known: tuple[list[float | None], ...] = numbers(run.result, "class_counts"), [*evaluated_samples(run.result)]
    counts, tested = (values + [None] * (len(accuracies) - len(values)) for values in known)
    return [
        Breakdown(run.class_name(i), accuracy, counts[i], tested[i], run.filters(i))
        for i, accuracy in enumerate(accuracies)
    ]


def _over_size(rows: Sequence[Breakdown]) -> Markup:
    """Accuracy over training samples, where classes differ in size: a long tail is seen at a glance."""
    known = [row for row in rows if row.accuracy is not None and row.trained]
    sizes = [row.trained or 0.0 for row in known]
    if len(known) < 5 or max(sizes) < 2 * min(sizes):
        return NOTHING
    dots = [Dot(row.name, row.trained or 0.0, row.accuracy or 0.0, row.attributes) for row in known]
    chart = scatter("Accuracy of classes by size", dots, "Training samples of the class", "training samples")
    return element("div", captioned("Accuracy of classes by size", chart), class_="panels")


def _bars(caption: str, what: str, rows: Sequence[Breakdown]) -> Markup:
    columns = [("Training", "trained"), ("Tested", "tested")]
    counted = [(label, key) for label, key in columns if any(getattr(row, key) is not None for row in rows)]
    has_interval = any(row.tested and row.accuracy is not None for row in rows)
    unseen = element("span", "Bar", class_="unseen")
    interval = ["95\u00a0%"] if has_interval else []
    header: list[object] = [what, *(label for label, _ in counted), "Accuracy", *interval, unseen]
    body = [[row.name, *(count(getattr(row, key)) for _, key in counted), *_shown(row, has_interval)] for row in rows]
    words = "95 %: Wilson interval from the tested samples." if has_interval else ""
    drawn = table(caption, header, body, attributes=[row.attributes for row in rows])
    return element("div", drawn, note(words), class_="bars")


def _shown(row: Breakdown, has_interval: bool) -> list[object]:
    if row.accuracy is None:
        return ["", *([""] if has_interval else []), element("small", ABSENT)]
    interval = wilson(row.accuracy * row.tested, row.tested) if row.tested else None
    text = "" if interval is None else f"{100 * interval[0]:.0f} – {100 * interval[1]:.0f}"
    return [percent(row.accuracy), *([text] if has_interval else []), bar(row.accuracy, interval)]
