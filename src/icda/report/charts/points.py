"""Points: classes over their size, and methods beside each other with their spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from icda.report.charts.axes import BOTTOM, RIGHT, TOP, WIDTH, Frame, label, number, plot, stroke, ticks
from icda.report.markup import Markup, element

ROW = 24


@dataclass(frozen=True)
class Dot:
    """A class in a scatter plot: its place, its name, and the attributes its filter goes by."""

    name: str
    x: float
    y: float
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Whisker:
    """A method's mean, with a line of one standard deviation to each side where it is known."""

    name: str
    mean: float
    std: float | None
    runs: int


def scatter(title: str, dots: Sequence[Dot], x_label: str, x_unit: str) -> Markup:
    """Shares upwards from 0 to 100 % over a count on a logarithmic axis."""
    low, high = (math.log10(choose(dot.x for dot in dots)) for choose in (min, max))
    frame = Frame((low - 0.06 * (high - low), high + 0.06 * (high - low)), (0.0, 1.0))
    parts = frame.up([0.0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    marks = _powers(low, high)
    parts += frame.across([math.log10(x) for x in marks], [f"{x:,g}" for x in marks], x_label)
    for dot in dots:
        place = {"cx": f"{frame.x(math.log10(dot.x)):.1f}", "cy": f"{frame.y(dot.y):.1f}"}
        tip = f"{dot.name}\n{number(dot.y, True)}, {dot.x:,.0f} {x_unit}"
        parts.append(element("circle", **place, r="4", class_="point", data_tip=tip, **dot.attributes))
    worst = min(dots, key=lambda dot: dot.y)
    description = f"{len(dots)} classes; the lowest is {worst.name} with {number(worst.y, True)}."
    return plot(title, description, parts)


def whiskers(title: str, entries: Sequence[Whisker], percent: bool, x_label: str) -> Markup:
    """A row for each entry: a dot at its mean and a line of one standard deviation to each side."""
    reach = [entry.mean + sign * (entry.std or 0.0) for entry in entries for sign in (-1, 1)]
    marks = ticks(min(reach), max(reach), 3)
    left = min(36 + 6.4 * max(len(_short(entry.name)) for entry in entries), 160)
    height = TOP + BOTTOM + ROW * len(entries)
    frame = Frame((marks[0], marks[-1]), (0.0, 1.0), left, height)
    parts = [stroke("grid", (frame.x(x), TOP), (frame.x(x), frame.bottom)) for x in marks]
    parts += frame.across(marks, [number(x, percent) for x in marks], x_label)
    sentences = []
    for position, entry in enumerate(entries):
        y, x = TOP + ROW * (position + 0.5), frame.x(entry.mean)
        spread = "" if entry.std is None else f" ± {number(entry.std, percent, 2)}"
        text = f"{number(entry.mean, percent)}{spread}"
        parts.append(label(_short(entry.name), left - 10, y + 4, "end", "row"))
        if entry.std is not None:
            parts.append(stroke("span", (frame.x(entry.mean - entry.std), y), (frame.x(entry.mean + entry.std), y)))
        parts.append(element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4.5", class_="point"))
        band = {"x": "0", "y": f"{y - ROW / 2:.1f}", "width": f"{WIDTH - RIGHT}", "height": f"{ROW}"}
        runs = f"{entry.runs} run{'' if entry.runs == 1 else 's'}"
        parts.append(element("rect", **band, class_="hit", data_tip=f"{entry.name}\n{text} ({runs})"))
        sentences.append(f"{entry.name}: {text}.")
    return plot(title, " ".join(sentences), parts, height)


def _powers(low: float, high: float) -> list[float]:
    """Round counts between 10**low and 10**high: 1, 2, 5, 10 ... thinned to a handful."""
    exponents = range(math.floor(low), math.ceil(high) + 1)
    steps = (1.0, 2.0, 5.0) if high - low < 2.2 else (1.0,)
    marks = [step * 10.0**power for power in exponents for step in steps]
    inside = [x for x in marks if low - 1e-9 <= math.log10(x) <= high + 1e-9]
    return inside or [round(10**low), round(10**high)]


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"
