"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Sequence

from icda.report.formatting import percent
from icda.report.markup import Markup, element, escape, section
from icda.report.markup import table as html_table
from icda.report.results import Result, as_number, class_name, listing

MATRIX_LIMIT = 20
PAIRS_SHOWN = 15


def confusion(result: Result, level: int) -> Markup:
    """The confusion matrix, or for many classes the most frequent mistakes; empty without one."""
    matrix = [[as_number(cell) or 0.0 for cell in row] for row in listing(result, "confusion")]
    if not matrix:
        return Markup("")
    if any(len(row) != len(matrix) for row in matrix):
        widths = sorted({len(row) for row in matrix})
        raise ValueError(
            f"a confusion matrix has as many columns as rows, got {len(matrix)} rows of {widths}: "
            "one row a true class, one column a predicted class."
        )
    names = [class_name(result, i) for i in range(len(matrix))]
    body = _matrix(matrix, names) if len(matrix) <= MATRIX_LIMIT else _pairs(matrix, names)
    return section("Confusion", level, body)


def _matrix(matrix: Sequence[Sequence[float]], names: Sequence[str]) -> Markup:
    rows = []
    for true, row in enumerate(matrix):
        total = sum(row) or 1.0
        cells = [_cell(count, count / total, true == predicted) for predicted, count in enumerate(row)]
        rows.append([names[true], *cells])
    header = ["True ↓ Predicted →", *names]
    caption = "Number of samples of each true class (rows) by predicted class (columns); shading: share of the row"
    return element("div", html_table(caption, header, rows), class_="confusion")


def _cell(count: float, share: float, right: bool) -> Markup:
    # The shade is a custom property: the style sheet mixes it with the colours of the light or the dark theme.
    css = "shade right" if right else "shade"
    return element("span", escape(f"{count:,.0f}"), class_=css, style=f"--share: {share:.3f}")


def _pairs(matrix: Sequence[Sequence[float]], names: Sequence[str]) -> Markup:
    wrong = [
        (count, true, predicted)
        for true, row in enumerate(matrix)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    wrong.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    rows = []
    for count, true, predicted in wrong[:PAIRS_SHOWN]:
        rows.append([names[true], names[predicted], f"{count:,.0f}", percent(count / sum(matrix[true]))])
    caption = f"The most frequent mistakes among {len(matrix)} classes"
    return html_table(caption, ["True class", "Predicted", "Samples", "Share of class"], rows, names=2)
