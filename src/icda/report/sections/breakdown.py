"""Accuracy class by class and group by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from icda.report.charts import Dot, bar, scatter
from icda.report.formatting import percent
from icda.report.intervals import wilson
from icda.report.markup import Markup, element, section, table
from icda.report.results import as_number, listing, mapping
from icda.report.runs import Run, evaluated_samples

SHOWN_AT_ONCE = 30
ABSENT = "no sample in this split"


@dataclass(frozen=True)
class Row:
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
        return Markup("")
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
        return Markup("")
    samples = [as_number(value) for value in listing(run.result, "group_samples")]
    samples += [None] * (len(accuracies) - len(samples))
    rows = []
    for (name, value), tested in zip(accuracies.items(), samples, strict=False):
        token = run.vocabulary.groups.get(str(name))
        filters = {} if token is None else {"data_group": token}
        rows.append(Row(str(name), as_number(value), None, tested, filters))
    return section("Accuracy per group", level, _bars("Accuracy of each group", "Group", rows))


def _class_rows(run: Run) -> list[Row]:
    accuracies = [as_number(value) for value in listing(mapping(run.result, "metrics"), "per_class_accuracy")]
    counts = [as_number(value) for value in listing(run.result, "class_counts")]
    samples: list[float | None] = [*evaluated_samples(run.result)]
    counts, tested = (known + [None] * (len(accuracies) - len(known)) for known in (counts, samples))
    return [
        Row(run.class_name(i), accuracy, counts[i], tested[i], run.filters(i)) for i, accuracy in enumerate(accuracies)
    ]


def _over_size(rows: Sequence[Row]) -> Markup:
    """Accuracy over training samples, where classes differ in size: a long tail is seen at a glance."""
    known = [row for row in rows if row.accuracy is not None and row.trained]
    sizes = [row.trained or 0.0 for row in known]
    if len(known) < 5 or max(sizes) < 2 * min(sizes):
        return Markup("")
    dots = [Dot(row.name, row.trained or 0.0, row.accuracy or 0.0, row.attributes) for row in known]
    chart = scatter("Accuracy of classes by size", dots, "Training samples of the class", "training samples")
    caption = element("figcaption", "Accuracy of classes by size")
    return element("div", element("figure", caption, chart), class_="panels")


def _bars(caption: str, what: str, rows: Sequence[Row]) -> Markup:
    columns = [("Training", "trained"), ("Tested", "tested")]
    counted = [(label, key) for label, key in columns if any(getattr(row, key) is not None for row in rows)]
    has_interval = any(row.tested and row.accuracy is not None for row in rows)
    header: list[object] = [
        what,
        *(label for label, _ in counted),
        "Accuracy",
        *(["95\u00a0%"] if has_interval else []),
    ]
    header.append(element("span", "Bar", class_="unseen"))
    body = [[row.name, *(_count(getattr(row, key)) for _, key in counted), *_shown(row, has_interval)] for row in rows]
    note = "95 %: Wilson interval from the tested samples." if has_interval else ""
    drawn = table(caption, header, body, attributes=[row.attributes for row in rows])
    return element("div", drawn, element("p", note, class_="note") if note else "", class_="bars")


def _shown(row: Row, has_interval: bool) -> list[object]:
    if row.accuracy is None:
        return ["", *([""] if has_interval else []), element("small", ABSENT)]
    interval = wilson(row.accuracy * row.tested, row.tested) if row.tested else None
    text = "" if interval is None else f"{100 * interval[0]:.0f} – {100 * interval[1]:.0f}"
    return [percent(row.accuracy), *([text] if has_interval else []), bar(row.accuracy, interval)]


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
