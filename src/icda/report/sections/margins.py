"""How far samples are from being taken for another class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import histogram, spark
from icda.report.formatting import percent
from icda.report.markup import Markup, definitions, element, section, table
from icda.report.results import as_number, listing
from icda.report.runs import Run

SHOWN_AT_ONCE = 12


def margins(run: Run, level: int) -> Markup:
    """The margins' histogram and a row for each class; empty without margins."""
    part = run.part("margins")
    edges, rows = read_bins(part)
    if not rows:
        return Markup("")
    split = run.explanations.get("split") or "test"
    caption = f"Margins of the {split} samples"
    chart = histogram(caption, edges, rows, run.class_tokens(len(rows)), "Margin (logits)")
    words = "Margin: the true class's logit minus the largest other one. Below zero the sample is classified wrongly."
    drawn = element("figure", element("figcaption", caption), chart, element("p", words, class_="note"))
    facts = _facts(part, {"mean": "Mean margin", "median": "Median margin"})
    negative = as_number(part.get("share_negative"))
    facts += [] if negative is None else [("Below zero", percent(negative))]
    classes = per_class_bins(run, edges, rows, f"Margins class by class, {split} split", signed=True)
    return section("Margins", level, definitions(facts, "facts") if facts else "", _two(drawn, classes))


def read_bins(part: Mapping[str, Any]) -> tuple[list[float], list[list[float]]]:
    """Edges and one row of counts per class."""
    edges = [value for edge in listing(part, "edges") if (value := as_number(edge)) is not None]
    return edges, [[as_number(cell) or 0.0 for cell in row] for row in listing(part, "counts")]


def per_class_bins(
    run: Run, edges: Sequence[float], rows: Sequence[Sequence[float]], caption: str, signed: bool
) -> Markup:
    """A row for each class with its own small histogram; the share below zero only where zero is an edge: it is exact."""
    zero = next((i for i, edge in enumerate(edges) if abs(edge) < 1e-9), None) if signed else None
    body = []
    for index, counts in enumerate(rows):
        total = sum(counts)
        below = [] if zero is None else [percent(sum(counts[:zero]) / total) if total else ""]
        body.append([run.class_name(index), f"{total:,.0f}", *below, spark(counts, zero)])
    header = ["Class", "Samples", *([] if zero is None else ["Below zero"]), "Distribution"]
    drawn = table(caption, header, body, attributes=[run.filters(index) for index in range(len(rows))])
    return element("div", drawn, class_="sparks tall" if len(rows) > SHOWN_AT_ONCE else "sparks")


def _facts(part: Mapping[str, Any], labels: Mapping[str, str]) -> list[tuple[object, object]]:
    known = ((label, as_number(part.get(key))) for key, label in labels.items())
    return [(label, f"{value:.3g}".replace("-", "−")) for label, value in known if value is not None]


def _two(chart: Markup, beside: Markup) -> Markup:
    return element("div", chart, beside, class_="beside")
