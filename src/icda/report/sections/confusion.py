"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Sequence

from icda.errors import InputError
from icda.report.charts import Heat, heat_map
from icda.report.formatting import percent
from icda.report.markup import Markup, element, section, table
from icda.report.results import as_number, listing
from icda.report.runs import Run

PAIRS_SHOWN = 15
PAIRS_OF_A_CLASS = 3  # of each class, so that the filter finds something for all of them
TALL = 20


def confusion(run: Run, level: int) -> Markup:
    """The confusion matrix and the most frequent mistakes; empty without a matrix."""
    rows = [row if isinstance(row, list | tuple) else [] for row in listing(run.result, "confusion")]
    matrix = [[as_number(cell) or 0.0 for cell in row] for row in rows]
    if not matrix:
        return Markup("")
    check_square("a confusion matrix", matrix, "one row a true class, one column a predicted class")
    totals = [sum(row) or 1.0 for row in matrix]
    heat = Heat(
        caption="Samples of each true class (rows) by predicted class (columns)",
        corner="True ↓ Predicted →",
        names=[run.class_name(i) for i in range(len(matrix))],
        values=matrix,
        share=[[cell / total for cell in row] for row, total in zip(matrix, totals, strict=True)],
        text=lambda value: f"{value:,.0f}",
        tip="true {row}, predicted {column}\n{value} samples, {share} of the class",
        tokens=run.class_tokens(len(matrix)),
    )
    note = "Blue: right, orange: mistakes. Colour grows with the square root of the share of the row."
    return section("Confusion", level, heat_map(heat), element("p", note, class_="note"), _mistakes(run, matrix))


def check_square(what: str, matrix: Sequence[Sequence[float]], meaning: str) -> None:
    """Raise unless there are as many columns as rows."""
    if any(len(row) != len(matrix) for row in matrix):
        widths = sorted({len(row) for row in matrix})
        raise InputError(f"{what} has as many columns as rows, got {len(matrix)} rows of {widths}: {meaning}.")


def _mistakes(run: Run, matrix: Sequence[Sequence[float]]) -> Markup:
    wrong = [
        (count, true, predicted)
        for true, row in enumerate(matrix)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    if not wrong:
        return Markup("")
    wrong.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    rows, filters = [], []
    for count, true, predicted in _shown(wrong):
        share = percent(count / sum(matrix[true]))
        rows.append([run.class_name(true), run.class_name(predicted), f"{count:,.0f}", share])
        filters.append(run.filters(true, predicted))
    all_wrong = sum(count for count, *_ in wrong)
    caption = f"The most frequent of {len(wrong):,} kinds of mistakes ({all_wrong:,.0f} samples in all)"
    header = ["True class", "Predicted", "Samples", "Share of class"]
    drawn = table(caption, header, rows, names=2, attributes=filters)
    return element("div", drawn, class_="tall") if len(rows) > TALL else drawn


def _shown(wrong: Sequence[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    """The most frequent mistakes of all, and those of each class; in the order given, most frequent first."""
    seen: dict[int, int] = {}
    kept = []
    for place, (count, true, predicted) in enumerate(wrong):
        seen[true] = seen.get(true, 0) + 1
        if place < PAIRS_SHOWN or seen[true] <= PAIRS_OF_A_CLASS:
            kept.append((count, true, predicted))
    return kept
