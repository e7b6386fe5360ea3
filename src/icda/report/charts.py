"""Small charts as inline SVG: told apart by line style as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from icda.report.markup import Markup, element

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 34, 38

Point = tuple[float, float | None]  # no y: a gap in the line


@dataclass(frozen=True)
class Line:
    """A named series of points in rising order of x."""

    label: str
    points: Sequence[Point]


def bar(share: float) -> Markup:
    """A bar filled to `share` of its width. The number stands beside it, so screen readers pass over the bar."""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    track = element("rect", width="100", height="10", class_="track")
    fill = element("rect", width=width, height="10", class_="fill")
    return element(
        "svg", track, fill, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none", aria_hidden="true"
    )


def ticks(low: float, high: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers that enclose low..high, in about `count` steps of 1, 2, 2.5 or 5 times a power of ten.

    >>> ticks(0.43, 0.91), ticks(1, 7, whole=True)
    ([0.4, 0.6, 0.8, 1.0], [0.0, 2.0, 4.0, 6.0, 8.0])
    """
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0) if low else 1.0
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    if whole:
        power = max(power, 1.0)
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(factor * power for factor in factors if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def line_chart(title: str, lines: Sequence[Line], percent: bool, x_label: str = "Epoch") -> Markup:
    """Lines over a common x, with a legend above and a description for screen readers."""
    xs = [x for line in lines for x, y in line.points if y is not None]
    ys = [y for line in lines for _, y in line.points if y is not None]
    x_range = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 1, max(xs) + 1)
    y_ticks = ticks(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_range[0]) / (x_range[1] - x_range[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [element("title", title), element("desc", _describe(lines, percent))]
    for y in y_ticks:
        height = place(x_range[0], y)[1]
        parts.append(_stroke("grid", (LEFT, height), (WIDTH - RIGHT, height)))
        parts.append(_label(_number(y, percent), LEFT - 6, height + 4, "end"))
    for x in (x for x in ticks(*x_range, whole=True) if x_range[0] <= x <= x_range[1]):
        parts.append(_label(f"{x:g}", place(x, y_ticks[0])[0], HEIGHT - BOTTOM + 16, "middle"))
    parts.append(_label(x_label, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "middle"))
    for position, line in enumerate(lines):
        parts += _legend(line.label, position)
        for run in _runs(line.points):
            parts.append(_path([place(x, y) for x, y in run], position))
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title)


def _runs(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _path(places: Sequence[tuple[float, float]], position: int) -> Markup:
    if len(places) == 1:
        (x, y), *_ = places
        return element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_=f"dot series-{position}")
    return _stroke(f"line series-{position}", *places)


def _stroke(css: str, *places: tuple[float, float]) -> Markup:
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_=css)


def _label(text: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _legend(label: str, position: int) -> list[Markup]:
    x = LEFT + 150 * position
    return [_stroke(f"line series-{position}", (x, 12), (x + 24, 12)), _label(label, x + 30, 16, "start")]


def _number(value: float, percent: bool) -> str:
    return f"{100 * value:g} %" if percent else f"{value:g}"


def _describe(lines: Sequence[Line], percent: bool) -> str:
    sentences = []
    for line in lines:
        known = [(x, y) for x, y in line.points if y is not None]
        (x0, y0), (x1, y1) = known[0], known[-1]
        first, last = (_number(round(y, 3), percent) for y in (y0, y1))
        sentences.append(f"{line.label} goes from {first} at epoch {x0:g} to {last} at epoch {x1:g}.")
    return " ".join(sentences)
