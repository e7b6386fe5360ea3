"""Small charts as inline SVG: complete without a script, told apart by more than colour."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from icda.errors import InputError
from icda.report.formatting import Interval
from icda.report.markup import Markup, element, join

WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
ROW = 24  # height of an entry among whiskers
STYLES = 8  # colours and dashes in the style sheet
BANDS = 200  # places at which values can be read off; enough for a finger, few enough for the page

Place = tuple[float, float]
Point = tuple[float, float | None]  # no y: a gap in the line


def ticks(low: float, high: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers that enclose low..high, in about `count` steps of 1, 2, 2.5 or 5 times a power of ten."""
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
    """A value as people read it, with a real minus sign."""
    text = f"{100 * value:.{digits}g} %" if percent else f"{value:.{digits}g}"
    return text.replace("-", "−")


@dataclass(frozen=True)
class Series:
    """A named series of points in rising order of x; `spread` is the standard deviation at each point, if known."""

    label: str
    points: Sequence[Point]
    spread: Sequence[float | None] = ()


def line_chart(title: str, lines: Sequence[Series], percent: bool) -> Markup:
    """Lines with a legend below; at each x all values can be read off by pointing at them."""
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    xs, ys = [x for x, _ in known], [y for _, y in known]
    x_range = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 1, max(xs) + 1)
    y_ticks = ticks(min(ys), max(ys))
    frame = Frame(x_range, (y_ticks[0], y_ticks[-1]))
    x_ticks = [x for x in ticks(*x_range, whole=True) if x_range[0] <= x <= x_range[1]]
    parts = frame.up(y_ticks, [number(y, percent) for y in y_ticks])
    parts += frame.across(x_ticks, [f"{x:g}" for x in x_ticks], "Epoch")
    for position, line in enumerate(lines):
        parts += _paths(frame, line.points, f"series-{position % STYLES}")
    parts += _bands(frame, lines, percent)
    return join([plot(title, _describe(lines, percent), parts), _legend([line.label for line in lines])])


def _legend(labels: Sequence[str]) -> Markup:
    """Which style is whose; wraps on a narrow screen."""
    entries = []
    for position, text in enumerate(labels):
        swatch = stroke(f"line series-{position % STYLES}", (0, 5), (26, 5))
        drawn = element("svg", swatch, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")
        entries.append(element("li", drawn, element("span", text)))
    return element("ul", *entries, class_="legend")


def _bands(frame: Frame, lines: Sequence[Series], percent: bool) -> list[Markup]:
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
    for x, (start, end) in zip(xs, itertools.pairwise(edges), strict=True):
        place = {"x": f"{start:.1f}", "y": TOP, "width": f"{end - start:.1f}", "height": f"{frame.bottom - TOP:.0f}"}
        bands.append(element("rect", **place, class_="hit", data_tip="\n".join([f"Epoch {x:g}", *values[x]])))
    return bands


def _paths(frame: Frame, points: Sequence[Point], style: str) -> Iterator[Markup]:
    """The stretches of a line between its gaps; one that is a single point is a dot."""
    for known, stretch in itertools.groupby(points, lambda point: point[1] is not None):
        places = [(frame.x(x), frame.y(y)) for x, y in stretch if y is not None]
        if len(places) == 1:
            (x, y), *_ = places
            yield element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_=f"dot {style}")
        elif known:
            yield stroke(f"line {style}", *places)


def _describe(lines: Sequence[Series], percent: bool) -> str:
    sentences = []
    for line in lines:
        known = [(x, y) for x, y in line.points if y is not None]
        (x0, y0), (x1, y1) = known[0], known[-1]
        first, last = number(y0, percent, 3), number(y1, percent, 3)
        sentences.append(f"{line.label} goes from {first} at epoch {x0:g} to {last} at epoch {x1:g}.")
    return " ".join(sentences)


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


def histogram(title: str, edges: Sequence[float], rows: Sequence[Sequence[float]], tokens: str, x_label: str) -> Markup:
    """Bars of all classes' samples, a row of `rows` each, between `edges`; `tokens` are the classes' filter tokens."""
    widths = sorted({len(row) for row in rows})
    if not rows or widths != [len(edges) - 1] or len(edges) < 2:
        wanted = f"{len(edges)} edges need {max(len(edges) - 1, 1)} counts in every class's row"
        raise InputError(f"{title}: {wanted}, got rows of {widths}.")
    totals = [sum(column) for column in zip(*rows, strict=True)]
    top = ticks(0.0, max(totals) or 1.0)[-1]
    frame = Frame((edges[0], edges[-1]), (0.0, top))
    parts = []
    for share in (0.0, 0.5, 1.0):  # fixed places: the script only rewrites the numbers
        height = frame.y(share * top)
        parts.append(stroke("grid", (frame.left, height), (frame.x(edges[-1]), height)))
        parts.append(label(f"{share * top:,.4g}", frame.left - 6, height + 4, "end", "scale"))
    marks = [x for x in ticks(edges[0], edges[-1], 5) if edges[0] <= x <= edges[-1]]
    parts += frame.across(marks, [number(x, False) for x in marks], x_label)
    everything = sum(totals)
    for low, high, count in zip(edges[:-1], edges[1:], totals, strict=True):
        parts += _column(frame, low, high, count, everything or 1.0)
    if edges[0] < 0 < edges[-1]:
        parts.append(stroke("zero", (frame.x(0.0), TOP), (frame.x(0.0), frame.bottom)))
    compact = json.dumps([[round(count, 4) for count in row] for row in rows], separators=(",", ":"))
    data = {"data_rows": compact, "data_tokens": tokens, "data_floor": f"{frame.bottom:g}", "data_ceiling": f"{TOP}"}
    peak = max(range(len(totals)), key=totals.__getitem__)
    most = f"{number(edges[peak], False, 3)} to {number(edges[peak + 1], False, 3)}"
    description = f"{everything:,.0f} samples; most of them, {totals[peak]:,.0f}, lie from {most}."
    return plot(title, description, parts, HEIGHT, **data)


def _column(frame: Frame, low: float, high: float, count: float, everything: float) -> list[Markup]:
    """The bar, and a place of full height to point at: a bar may have no height at all."""
    left, right = frame.x(low), frame.x(high)
    place = {"x": f"{left + 0.4:.2f}", "width": f"{max(right - left - 0.8, 0.5):.2f}"}
    upright = {"y": f"{frame.y(count):.2f}", "height": f"{frame.bottom - frame.y(count):.2f}"}
    bar = element("rect", **place, **upright, class_="fill below column" if high <= 0 else "fill column")
    span = f"{number(low, False, 3)} to {number(high, False, 3)}"
    tip = f"{span}\n{count:,.0f} samples, {100 * count / everything:.1f} %"
    band = {"x": f"{left:.2f}", "y": f"{TOP}", "width": f"{right - left:.2f}", "height": f"{frame.bottom - TOP:g}"}
    return [bar, element("rect", **band, class_="hit", data_span=span, data_tip=tip)]


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
