"""Bars so small that they stand in a table's cell. The number stands beside them, so screen readers pass over them."""

from __future__ import annotations

from collections.abc import Sequence

from icda.report.intervals import Interval
from icda.report.markup import Markup, element


def bar(share: float, interval: Interval | None = None) -> Markup:
    """A bar filled to `share` of its width, with a thin line for the interval it lies in."""
    parts = [element("rect", width="100", height="10", class_="track")]
    parts.append(element("rect", width=f"{_width(share):.1f}", height="10", class_="fill"))
    if interval is not None:
        low, high = map(_width, interval)
        parts.append(element("rect", x=f"{low:.1f}", y="4", width=f"{high - low:.1f}", height="2", class_="whisker"))
    return _small("bar", "0 0 100 10", parts)


def spark(counts: Sequence[float], middle: int | None = None) -> Markup:
    """A histogram the size of a word; bars left of position `middle` are those below zero."""
    top, step = max(counts, default=0) or 1.0, 100 / max(len(counts), 1)
    parts = []
    for position, count in enumerate(counts):
        height = 20 * count / top
        css = "fill below" if middle is not None and position < middle else "fill"
        place = {"x": f"{position * step:.2f}", "y": f"{20 - height:.2f}"}
        if count:
            parts.append(element("rect", **place, width=f"{step * 0.9:.2f}", height=f"{height:.2f}", class_=css))
    return _small("spark", "0 0 100 20", parts)


def _small(css: str, box: str, parts: Sequence[Markup]) -> Markup:
    return element("svg", *parts, class_=css, viewBox=box, preserveAspectRatio="none", aria_hidden="true")


def _width(share: float) -> float:
    return 100 * min(max(share, 0.0), 1.0)
