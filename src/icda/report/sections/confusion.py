"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Sequence

from icda.errors import InputError
from icda.report.charts import Heat, heat_map
from icda.report.formatting import percent
from icda.report.markup import NOTHING, Markup, element, note, section, table
from icda.report.results import Run, matrix

PAIRS_SHOWN = 15
PAIRS_OF_A_CLASS = 3  # of each class, so that the filter finds something for all of them
TALL = 20


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
    cells = [(count, true, predicted) for true, row in enumerate(counts) for predicted, count in enumerate(row)]
    wrong = [(count, true, predicted) for count, true, predicted in cells if count and true != predicted]
    if not wrong:
        return NOTHING
    wrong.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    rows, filters = [], []
    for count, true, predicted in _shown(wrong):
        share = percent(count / sum(counts[true]))
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
