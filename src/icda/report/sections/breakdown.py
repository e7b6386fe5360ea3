"""Accuracy class by class and group by group, and which class is taken for which: squares of numbers as colour."""

import base64
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from icda.errors import InputError
from icda.report.charts import Dot, bar, scatter
from icda.report.formatting import count, percent, wilson
from icda.report.markup import NOTHING, Markup, captioned, element, note, section, table, void
from icda.report.results import Run, as_number, evaluated_samples, mapping, matrix, numbers

READABLE = 20  # classes up to which every cell shows its number
SHADES = 20
DIAGONAL, OTHER = (31, 119, 200), (214, 96, 20)  # the two colours of the style sheet, for the picture


@dataclass(frozen=True)
class Heat:
    """A square of numbers with the names of its rows and columns, and what a cell says of itself.

    `share` (same shape, 0 to 1) decides the colour, which grows with its square root: rare mistakes stay visible. `tip`
    tells of a row and a column in words; `text` is what a readable cell shows.
    """

    caption: str
    corner: str
    names: Sequence[str]
    values: Sequence[Sequence[float]]
    share: Sequence[Sequence[float]]
    text: Callable[[float], str]
    tip: str  # {row}, {column}, {value}, {share} are filled in by the script too
    tokens: str


def heat_map(heat: Heat) -> Markup:
    """The square as a table up to 20 classes, as a picture with values on pointing beyond."""
    return _cells(heat) if len(heat.names) <= READABLE else _pixels(heat)


def fill(heat: Heat, row: int, column: int) -> str:
    """What the cell says of itself."""
    value, share = heat.values[row][column], heat.share[row][column]
    words = {"row": heat.names[row], "column": heat.names[column], "value": heat.text(value)}
    # One pass, so that a class called "{value}" stays what it is.
    pieces = heat.tip.replace("{share}", f"{100 * share:.1f} %").split("{")
    return pieces[0] + "".join(words[name] + rest for name, _, rest in (piece.partition("}") for piece in pieces[1:]))


def _cells(heat: Heat) -> Markup:
    tokens = heat.tokens.split()
    rows = []
    for row, name in enumerate(heat.names):
        cells = []
        for column, value in enumerate(heat.values[row]):
            level = round(SHADES * math.sqrt(min(max(heat.share[row][column], 0.0), 1.0)))
            css = f"shade {'right ' if row == column else ''}shade-{level}"
            pair = f"{tokens[row]} {tokens[column]}"
            shown = element("span", heat.text(value), class_=css, data_tip=fill(heat, row, column), data_pair=pair)
            cells.append(shown)
        rows.append([name, *cells])
    body = table(heat.caption, [heat.corner, *heat.names], rows, sortable=False)
    return element("div", body, class_="confusion plot", data_columns=len(heat.names), data_label=heat.caption)


def _pixels(heat: Heat) -> Markup:
    size = len(heat.names)
    alt = f"{heat.caption}. {size} rows and columns; the most striking cells are listed as text below."
    compact = [[float(f"{value:.3g}") for value in row] for row in heat.values]
    cells = json.dumps([[int(x) if x == int(x) else x for x in row] for row in compact], separators=(",", ":"))
    shares = json.dumps([round(sum(row), 3) for row in heat.values], separators=(",", ":"))
    image = void("img", src=_png(heat.share), alt=alt, class_="pixels", width=size, height=size)
    data = {"data_cells": cells, "data_totals": shares, "data_tokens": heat.tokens, "data_tip_pattern": heat.tip}
    names = json.dumps(list(heat.names), separators=(",", ":"))
    square = element("div", image, class_="square plot", data_names=names, data_label=heat.caption, **data)
    caption = element("figcaption", heat.caption)
    axis = element("p", heat.corner, class_="note axis-words")
    return element("figure", caption, axis, square, class_="heat")


def _png(share: Sequence[Sequence[float]]) -> str:
    """One pixel per cell: colour for diagonal or not, opacity for the share, so that it suits both themes."""
    strength = np.sqrt(np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0))
    size = len(strength)
    pixels = np.zeros((size, size, 4), dtype=np.uint8)
    pixels[..., :3] = OTHER
    pixels[np.arange(size), np.arange(size), :3] = DIAGONAL
    pixels[..., 3] = np.round(255 * strength)
    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


SHOWN_AT_ONCE = 30
PAIRS_SHOWN = 15
PAIRS_OF_A_CLASS = 3  # of each class, so that the filter finds something for all of them
TALL = 20
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


def confusion(run: Run, level: int) -> Markup:
    """The confusion matrix and the most frequent mistakes; empty without a matrix."""
    counts = matrix(run.result, "confusion")
    if not counts:
        return NOTHING
    check_square("a confusion matrix", counts, "one row a true class, one column a predicted class")
    totals = [sum(row) or 1.0 for row in counts]
    heat = Heat(
        caption="Samples of each true class (rows) by predicted class (columns)",
        corner="True ↓ Predicted →",
        names=[run.class_name(i) for i in range(len(counts))],
        values=counts,
        share=[[cell / total for cell in row] for row, total in zip(counts, totals, strict=True)],
        text=lambda value: f"{value:,.0f}",
        tip="true {row}, predicted {column}\n{value} samples, {share} of the class",
        tokens=run.class_tokens(len(counts)),
    )
    words = "Blue: right, orange: mistakes. Colour grows with the square root of the share of the row."
    return section("Confusion", level, heat_map(heat), note(words), _mistakes(run, counts))


def check_square(what: str, rows: Sequence[Sequence[float]], meaning: str) -> None:
    """Raise unless there are as many columns as rows."""
    widths = sorted({len(row) for row in rows})
    if widths != [len(rows)]:
        raise InputError(f"{what} has as many columns as rows, got {len(rows)} rows of {widths}: {meaning}.")


def _mistakes(run: Run, counts: Sequence[Sequence[float]]) -> Markup:
    wrong = off_diagonal(counts)
    if not wrong:
        return NOTHING
    rows, filters = [], []
    of_class: dict[int, int] = {}
    for place, (samples, true, predicted) in enumerate(wrong):
        of_class[true] = of_class.get(true, 0) + 1
        if place < PAIRS_SHOWN or of_class[true] <= PAIRS_OF_A_CLASS:
            share = percent(samples / sum(counts[true]))
            rows.append([run.class_name(true), run.class_name(predicted), f"{samples:,.0f}", share])
            filters.append(run.filters(true, predicted))
    all_wrong = sum(samples for samples, *_ in wrong)
    caption = f"The most frequent of {len(wrong):,} kinds of mistakes ({all_wrong:,.0f} samples in all)"
    header = ["True class", "Predicted", "Samples", "Share of class"]
    drawn = table(caption, header, rows, names=2, attributes=filters)
    return element("div", drawn, class_="tall") if len(rows) > TALL else drawn


def off_diagonal(square: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    """The cells above zero beside the diagonal, largest first: value, row, column."""
    cells = [(cell, i, j) for i, row in enumerate(square) for j, cell in enumerate(row) if i != j and cell > 0]
    return sorted(cells, key=lambda cell: (-cell[0], cell[1], cell[2]))
