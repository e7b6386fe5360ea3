"""How far samples are from being taken for another class, and how strongly they are tied to one."""

from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import Series, histogram, line_chart, spark
from icda.report.formatting import percent
from icda.report.markup import NOTHING, Markup, captioned, definitions, element, note, section, table
from icda.report.results import Run, Vocabulary, as_number, matrix, numbers
from icda.report.sections.breakdown import PAIRS_SHOWN, Heat, check_square, heat_map, off_diagonal

SHOWN_AT_ONCE = 12
NO_TIES = "No class is tied to another: every mean strength is zero."


def margins(run: Run, level: int) -> Markup:
    """The margins' histogram and a row for each class; empty without margins."""
    part = run.part("margins")
    split = run.explanations.get("split") or "test"
    words = "Margin: the true class's logit minus the largest other one. Below zero the sample is classified wrongly."
    drawn = _distribution(run, part, f"Margins of the {split} samples", "Margin (logits)", words, signed=True)
    known = {"Mean margin": as_number(part.get("mean")), "Median margin": as_number(part.get("median"))}
    facts = [(label, f"{value:.3g}".replace("-", "−")) for label, value in known.items() if value is not None]
    negative = as_number(part.get("share_negative"))
    facts += [] if negative is None else [("Below zero", percent(negative))]
    return section("Margins", level, definitions(facts, "facts") if facts else "", drawn) if drawn else NOTHING


def strengths(run: Run, level: int) -> Markup:
    """The strengths' histogram and which class is tied to which; empty without strengths."""
    part = run.part("strengths")
    split, towards = part.get("split") or "train", matrix(part, "towards")
    words = "Strength: how closely a sample's features point to the other class that they resemble most."
    parts = [_distribution(run, part, f"Strengths of the {split} samples", "Strength", words, signed=False)]
    if towards:
        check_square("a matrix of ties", towards, "one row per class, one column the class it is tied to")
        names = [run.class_name(i) for i in range(len(towards))]
        parts += ties(towards, names, run.vocabulary) if any(map(any, towards)) else [element("p", NO_TIES)]
    return section("Strengths", level, *parts) if any(parts) else NOTHING


def variances(run: Run, level: int) -> Markup:
    """Mapped variances over training, on a class's own boundaries and on others; empty without them."""
    part, lines = run.part("variances"), []
    for key, label in (("own", "boundaries of the class"), ("unrelated", "unrelated boundaries")):
        both = zip(numbers(part, "epochs"), numbers(part, key), strict=False)
        points = [(x, y) for x, y in both if x is not None]
        if any(y is not None for _, y in points):
            lines.append(Series(label, points))
    if not lines:
        return NOTHING
    title = "Variance of classes along decision boundaries"
    drawn = captioned(title, line_chart(title, lines, percent=False))
    return section("Mapped variances", level, element("div", drawn, class_="panels"))


def _distribution(run: Run, part: Mapping[str, Any], caption: str, axis: str, words: str, signed: bool) -> Markup:
    """A histogram of all samples beside one for each class; empty where nothing was counted."""
    edges, rows = [edge for edge in numbers(part, "edges") if edge is not None], matrix(part, "counts")
    if not rows:
        return NOTHING
    chart = captioned(caption, histogram(caption, edges, rows, run.class_tokens(len(rows)), axis), note(words))
    # The share below zero only where zero is an edge: there it is exact.
    zero = next((i for i, edge in enumerate(edges) if abs(edge) < 1e-9), None) if signed else None
    body = []
    for index, counts in enumerate(rows):
        total = sum(counts)
        below = [] if zero is None else [percent(sum(counts[:zero]) / total) if total else ""]
        body.append([run.class_name(index), f"{total:,.0f}", *below, spark(counts, zero)])
    header = ["Class", "Samples", *([] if zero is None else ["Below zero"]), "Distribution"]
    name, _, rest = caption.partition(" of the ")
    by_class = f"{name} class by class, {rest.removesuffix(' samples')} split"
    classes = table(by_class, header, body, attributes=[run.filters(index) for index in range(len(rows))])
    beside = element("div", classes, class_="sparks tall" if len(rows) > SHOWN_AT_ONCE else "sparks")
    return element("div", chart, beside, class_="beside")


def ties(towards: Sequence[Sequence[float]], names: Sequence[str], vocabulary: Vocabulary) -> list[Markup]:
    """The square of mean strengths, and its strongest pairs as text."""
    top = max((abs(cell) for row in towards for cell in row), default=0.0) or 1.0
    heat = Heat(
        caption="Mean strength of the samples of a class (rows) to the other classes (columns)",
        corner="Samples of ↓ tied to →",
        names=names,
        values=towards,
        share=[[abs(cell) / top for cell in row] for row in towards],
        text=lambda value: f"{value:.2f}".replace("-", "−") if value else "",
        tip="samples of {row}, tied to {column}\nmean strength {value}",
        tokens=vocabulary.tokens(names),
    )
    shown = off_diagonal(towards)[:PAIRS_SHOWN]
    rows = [[names[i], names[j], f"{strength:.3f}"] for strength, i, j in shown]
    filters = [vocabulary.filters(names[i], names[j]) for _, i, j in shown]
    header = ["Samples of", "Tied to", "Mean strength"]
    pairs = table(f"The {len(shown)} strongest ties between classes", header, rows, names=2, attributes=filters)
    return [heat_map(heat), pairs if shown else NOTHING]
