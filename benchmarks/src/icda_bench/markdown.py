"""Tables and spreads as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column left, the rest right-aligned.

    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |:--|--:|
    | x | 1 |
    """
    rule = "|:--|" + "--:|" * (len(titles) - 1)
    return "\n".join(["| " + " | ".join(titles) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation over seeds, with their number in brackets; nothing for no value.

    >>> spread([1.0, 2.0, 3.0], digits=1), spread([2.0], digits=1), spread([], digits=1)
    ('2.0 ± 1.0 (3)', '2.0 (1)', '')
    """
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (1)"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f} ({len(values)})"
