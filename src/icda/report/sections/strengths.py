"""How strongly samples are tied to classes that are not theirs."""

from __future__ import annotations

from collections.abc import Sequence

from icda.report.charts import Heat, Line, heat_map, histogram, line_chart
from icda.report.markup import Markup, element, section, table
from icda.report.results import as_number, listing
from icda.report.runs import Run
from icda.report.sections.confusion import check_square
from icda.report.sections.margins import per_class_bins, read_bins

PAIRS_SHOWN = 15
NO_TIES = "No class is tied to another: every mean strength is zero."


def strengths(run: Run, level: int) -> Markup:
    """The strengths' histogram and which class is tied to which; empty without strengths."""
    part = run.part("strengths")
    edges, rows = read_bins(part)
    towards = [[as_number(cell) or 0.0 for cell in row] for row in listing(part, "towards")]
    parts: list[Markup] = []
    split = str(part.get("split") or "train")
    if rows:
        caption = f"Strengths of the {split} samples"
        chart = histogram(caption, edges, rows, run.class_tokens(len(rows)), "Strength")
        words = "Strength: how closely a sample's features point to the other class that they resemble most."
        drawn = element("figure", element("figcaption", caption), chart, element("p", words, class_="note"))
        classes = per_class_bins(run, edges, rows, f"Strengths class by class, {split} split", signed=False)
        parts.append(element("div", drawn, classes, class_="beside"))
    if towards:
        check_square("a matrix of ties", towards, "one row per class, one column the class it is tied to")
        parts += [_matrix(run, towards), _pairs(run, towards)] if any(map(any, towards)) else [element("p", NO_TIES)]
    return section("Strengths", level, *parts) if parts else Markup("")


def variances(run: Run, level: int) -> Markup:
    """Mapped variances over training, on a class's own boundaries and on others; empty without them."""
    part = run.part("variances")
    epochs = [as_number(value) for value in listing(part, "epochs")]
    lines = []
    for key, label in (("own", "boundaries of the class"), ("unrelated", "unrelated boundaries")):
        values = [as_number(value) for value in listing(part, key)]
        points = [(x, y) for x, y in zip(epochs, values, strict=False) if x is not None]
        if any(y is not None for _, y in points):
            lines.append(Line(label, points))
    if not lines:
        return Markup("")
    title = "Variance of classes along decision boundaries"
    drawn = element("figure", element("figcaption", title), line_chart(title, lines, percent=False))
    return section("Mapped variances", level, element("div", drawn, class_="panels"))


def _matrix(run: Run, towards: Sequence[Sequence[float]]) -> Markup:
    top = max((abs(cell) for row in towards for cell in row), default=0.0) or 1.0
    heat = Heat(
        caption="Mean strength of the samples of a class (rows) to the other classes (columns)",
        corner="Samples of ↓ tied to →",
        names=[run.class_name(i) for i in range(len(towards))],
        values=towards,
        share=[[abs(cell) / top for cell in row] for row in towards],
        text=lambda value: f"{value:.2f}".replace("-", "−") if value else "",
        tip="samples of {row}, tied to {column}\nmean strength {value}",
        tokens=run.class_tokens(len(towards)),
    )
    return heat_map(heat)


def _pairs(run: Run, towards: Sequence[Sequence[float]]) -> Markup:
    ties = [(cell, i, j) for i, row in enumerate(towards) for j, cell in enumerate(row) if i != j and cell > 0]
    ties.sort(key=lambda tie: (-tie[0], tie[1], tie[2]))
    if not ties:
        return Markup("")
    shown = ties[:PAIRS_SHOWN]
    rows = [[run.class_name(i), run.class_name(j), f"{strength:.3f}"] for strength, i, j in shown]
    caption = f"The {len(shown)} strongest ties between classes"
    filters = [run.filters(i, j) for _, i, j in shown]
    return table(caption, ["Samples of", "Tied to", "Mean strength"], rows, names=2, attributes=filters)
