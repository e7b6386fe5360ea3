"""The frame of a chart: where a value lies, ticks at round numbers, labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from icda.report.markup import Markup, element

WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40

Place = tuple[float, float]


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


@dataclass(frozen=True)
class Frame:
    """Where values lie in the picture: x to the right from `x_range`, y upwards from `y_range`."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: float = LEFT
    height: float = HEIGHT

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - (value - low) / ((high - low) or 1.0) * (self.bottom - TOP)

    @property
    def bottom(self) -> float:
        return self.height - BOTTOM

    def across(self, values: Sequence[float], texts: Sequence[str], title: str) -> list[Markup]:
        """Labels of the x axis and what it shows."""
        marks = []
        for value, text in zip(values, texts, strict=True):
            inside = min(self.x(value), WIDTH - 3.2 * len(text))  # the last label must not stick out
            marks.append(label(text, inside, self.bottom + 16, "middle"))
        return [*marks, label(title, (self.left + WIDTH - RIGHT) / 2, self.height - 5, "middle", "axis")]

    def up(self, values: Sequence[float], texts: Sequence[str]) -> list[Markup]:
        """Grid lines and labels of the y axis."""
        marks = []
        for value, text in zip(values, texts, strict=True):
            marks.append(stroke("grid", (self.left, self.y(value)), (WIDTH - RIGHT, self.y(value))))
            marks.append(label(text, self.left - 6, self.y(value) + 4, "end"))
        return marks


def plot(title: str, description: str, parts: Sequence[object], height: float = HEIGHT, **attributes: object) -> Markup:
    """The picture with its description; the script makes it reachable by keyboard, value after value."""
    drawn = element(
        "svg",
        element("title", title),
        element("desc", description),
        *parts,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=f"{title}. {description}",
    )
    return element("div", drawn, class_="plot", data_label=title, **attributes)


def stroke(css: str, *places: Place) -> Markup:
    """A line through places."""
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_=css)


def label(text: str, x: float, y: float, anchor: str, css: str | None = None) -> Markup:
    """A word in the picture."""
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=css)


def number(value: float, percent: bool, digits: int = 4) -> str:
    """A value as people read it, with a real minus sign.

    >>> number(0.8125, True), number(-1.5, False)
    ('81.25 %', '−1.5')
    """
    text = f"{100 * value:.{digits}g} %" if percent else f"{value:.{digits}g}"
    return text.replace("-", "−")
