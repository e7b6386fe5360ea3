"""Tables and spreads as text."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column left, the rest right-aligned.

    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |:--|--:|
    | x | 1 |
    """
    rule = "|:--|" + "--:|" * (len(titles) - 1)
    return "\n".join(["| " + " | ".join(titles) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def columns_table(rows: Sequence[Mapping[str, str]], titles: Mapping[str, str]) -> str:
    """Columns of a CSV file under other titles; those that a file of an earlier version does not have are left out.

    >>> print(columns_table([{"ms": "3", "n": "1"}], {"ms": "time", "mib": "memory"}))
    | time |
    |:--|
    | 3 |
    """
    names = [name for name in titles if name in rows[0]]
    return markdown([titles[name] for name in names], [[row[name] for name in names] for row in rows])


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Rows by what they have in common, in the order in which it first comes.

    >>> grouped(["bee", "ant", "cow", "ox"], len)
    {3: ['bee', 'ant', 'cow'], 2: ['ox']}
    """
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


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


def numbers(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """One column of rows, without what is empty there.

    >>> numbers([{"a": "0.5"}, {"a": ""}, {"a": 1}], "a")
    [0.5, 1.0]
    """
    return [float(row[name]) for row in rows if row[name] not in ("", None)]


def percent(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    """The spread of one column of rows, shares shown as per cent."""
    return spread([100 * value for value in numbers(rows, name)], digits=1)


def columns(*names: str) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
    """What to group rows by.

    >>> columns("a", "b")({"a": "x", "b": 1, "c": 2})
    ('x', '1')
    """
    return lambda row: tuple(str(row[name]) for name in names)
