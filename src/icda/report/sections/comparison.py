"""Several runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from icda.report.markup import Markup, element, section, table
from icda.report.results import Result
from icda.report.tables import comparison_table


def comparison(results: Sequence[Result], level: int) -> Markup:
    """Tasks and methods down, metrics across, mean ± standard deviation over runs; empty for a single run.

    What all runs have in common, the task or the selection rule, is said once above the table.
    """
    if len(results) < 2:
        return Markup("")
    tasks, rules = ({str(result.get(key) or "") for result in results} for key in ("task", "selection"))
    caption = "Mean ± standard deviation over n runs (n − 1 in the denominator)"
    caption += f"; task: {min(tasks)}" if len(tasks) == 1 else ""
    caption += f"; checkpoint kept by: {min(rules)}" if len(rules) == 1 and min(rules) else ""
    drawn = comparison_table(results)
    first = 1 if len(tasks) == 1 else 0
    rows = [row[first:] for row in drawn.rows]
    body = element("div", table(caption, drawn.header[first:], rows, drawn.names - first), class_="comparison")
    note = "One run has no deviation. An empty cell was not measured."
    return section("Comparison", level, body, element("p", note, class_="note"))
