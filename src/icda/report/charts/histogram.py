"""How samples spread over a value; the script redraws it for the class that is filtered."""

from __future__ import annotations

import json
from collections.abc import Sequence

from icda.errors import InputError
from icda.report.charts.axes import HEIGHT, TOP, Frame, label, number, plot, stroke, ticks
from icda.report.markup import Markup, element


def histogram(title: str, edges: Sequence[float], rows: Sequence[Sequence[float]], tokens: str, x_label: str) -> Markup:
    """Bars of the samples of all classes, one row of `rows` a class, between `edges`; a line marks zero.

    `tokens` are the classes' filter tokens in the order of the rows.
    """
    check_bins(title, edges, rows)
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


def check_bins(title: str, edges: Sequence[float], rows: Sequence[Sequence[float]]) -> None:
    """Raise unless every row has one count for each bin and there is something to draw."""
    widths = sorted({len(row) for row in rows})
    if not rows or widths != [len(edges) - 1] or len(edges) < 2:
        raise InputError(
            f"{title}: {len(edges)} edges need {max(len(edges) - 1, 1)} counts in every class's row, got rows of {widths}."
        )


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
