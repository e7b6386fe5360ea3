"""Lines over a common x."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from icda.report.charts.axes import RIGHT, TOP, WIDTH, Frame, number, plot, stroke, ticks
from icda.report.markup import Markup, element, join

STYLES = 8  # colours and dashes in the style sheet
BANDS = 200  # places at which values can be read off; enough for a finger, few enough for the page

Point = tuple[float, float | None]  # no y: a gap in the line


@dataclass(frozen=True)
class Series:
    """A named series of points in rising order of x; `spread` is the standard deviation at each point, if known."""

    label: str
    points: Sequence[Point]
    spread: Sequence[float | None] = ()


def line_chart(title: str, lines: Sequence[Series], percent: bool, x_label: str = "Epoch") -> Markup:
    """Lines with a legend below; at each x all values can be read off by pointing at them."""
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    xs, ys = [x for x, _ in known], [y for _, y in known]
    x_range = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 1, max(xs) + 1)
    y_ticks = ticks(min(ys), max(ys))
    frame = Frame(x_range, (y_ticks[0], y_ticks[-1]))
    x_ticks = [x for x in ticks(*x_range, whole=True) if x_range[0] <= x <= x_range[1]]
    parts = frame.up(y_ticks, [number(y, percent) for y in y_ticks])
    parts += frame.across(x_ticks, [f"{x:g}" for x in x_ticks], x_label)
    for position, line in enumerate(lines):
        for run in _runs(line.points):
            parts.append(_path([(frame.x(x), frame.y(y)) for x, y in run], position))
    parts += _bands(frame, lines, percent, x_label)
    return join([plot(title, _describe(lines, percent, x_label), parts), legend([line.label for line in lines])])


def legend(labels: Sequence[str]) -> Markup:
    """Which style is whose; wraps on a narrow screen."""
    entries = []
    for position, text in enumerate(labels):
        swatch = stroke(f"line series-{position % STYLES}", (0, 5), (26, 5))
        drawn = element("svg", swatch, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")
        entries.append(element("li", drawn, element("span", text)))
    return element("ul", *entries, class_="legend")


def _bands(frame: Frame, lines: Sequence[Series], percent: bool, x_label: str) -> list[Markup]:
    """Invisible columns to point at, each with all values at its x."""
    values: dict[float, list[str]] = {}
    for line in lines:
        spread = [*line.spread, *[None] * (len(line.points) - len(line.spread))]
        for (x, y), deviation in zip(line.points, spread, strict=True):
            text = "" if deviation is None else f" ± {number(deviation, percent, 2)}"
            shown = [] if y is None else [f"{line.label}: {number(y, percent)}{text}"]
            values.setdefault(x, []).extend(shown)
    every = -(-len(values) // BANDS)
    xs = sorted(values)[::every]
    places = [frame.x(x) for x in xs]
    edges = [frame.left, *((a + b) / 2 for a, b in itertools.pairwise(places)), WIDTH - RIGHT]
    bands = []
    for x, start, end in zip(xs, edges[:-1], edges[1:], strict=True):
        place = {"x": f"{start:.1f}", "y": f"{TOP}", "width": f"{end - start:.1f}"}
        place["height"] = f"{frame.bottom - TOP:.0f}"
        bands.append(element("rect", **place, class_="hit", data_tip="\n".join([f"{x_label} {x:g}", *values[x]])))
    return bands


def _runs(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _path(places: Sequence[tuple[float, float]], position: int) -> Markup:
    style = f"series-{position % STYLES}"
    if len(places) == 1:
        (x, y), *_ = places
        return element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_=f"dot {style}")
    return stroke(f"line {style}", *places)


def _describe(lines: Sequence[Series], percent: bool, x_label: str) -> str:
    sentences, unit = [], x_label.lower()
    for line in lines:
        known = [(x, y) for x, y in line.points if y is not None]
        (x0, y0), (x1, y1) = known[0], known[-1]
        first, last = number(y0, percent, 3), number(y1, percent, 3)
        sentences.append(f"{line.label} goes from {first} at {unit} {x0:g} to {last} at {unit} {x1:g}.")
    return " ".join(sentences)
