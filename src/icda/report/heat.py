"""Square tables of numbers as colour: cells of a table while they can be read, pixels of a picture beyond."""

import base64
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from icda.report.markup import Markup, element, table, void

READABLE = 20  # classes up to which every cell shows its number
SHADES = 20
DIAGONAL, OTHER = (31, 119, 200), (214, 96, 20)  # the two colours of the style sheet, for the picture


@dataclass(frozen=True)
class Heat:
    """A square of numbers with the names of its rows and columns, and what a cell says of itself.

    `share` (same shape, 0 to 1) decides the colour, which grows with its square root: rare mistakes stay visible. `tip`
    tells of a row and a column in words; `text` is what a readable cell shows.
    """

    caption: str
    corner: str
    names: Sequence[str]
    values: Sequence[Sequence[float]]
    share: Sequence[Sequence[float]]
    text: Callable[[float], str]
    tip: str  # {row}, {column}, {value}, {share} are filled in by the script too
    tokens: str


def heat_map(heat: Heat) -> Markup:
    """The square as a table up to 20 classes, as a picture with values on pointing beyond."""
    return _cells(heat) if len(heat.names) <= READABLE else _pixels(heat)


def fill(heat: Heat, row: int, column: int) -> str:
    """What the cell says of itself."""
    value, share = heat.values[row][column], heat.share[row][column]
    words = {"row": heat.names[row], "column": heat.names[column], "value": heat.text(value)}
    # One pass, so that a class called "{value}" stays what it is.
    pieces = heat.tip.replace("{share}", f"{100 * share:.1f} %").split("{")
    return pieces[0] + "".join(words[name] + rest for name, _, rest in (piece.partition("}") for piece in pieces[1:]))


def _cells(heat: Heat) -> Markup:
    tokens = heat.tokens.split()
    rows = []
    for row, name in enumerate(heat.names):
        cells = []
        for column, value in enumerate(heat.values[row]):
            level = round(SHADES * math.sqrt(min(max(heat.share[row][column], 0.0), 1.0)))
            css = f"shade {'right ' if row == column else ''}shade-{level}"
            pair = f"{tokens[row]} {tokens[column]}"
            shown = element("span", heat.text(value), class_=css, data_tip=fill(heat, row, column), data_pair=pair)
            cells.append(shown)
        rows.append([name, *cells])
    body = table(heat.caption, [heat.corner, *heat.names], rows, sortable=False)
    return element("div", body, class_="confusion plot", data_columns=len(heat.names), data_label=heat.caption)


def _pixels(heat: Heat) -> Markup:
    size = len(heat.names)
    alt = f"{heat.caption}. {size} rows and columns; the most striking cells are listed as text below."
    compact = [[float(f"{value:.3g}") for value in row] for row in heat.values]
    cells = json.dumps([[int(x) if x == int(x) else x for x in row] for row in compact], separators=(",", ":"))
    shares = json.dumps([round(sum(row), 3) for row in heat.values], separators=(",", ":"))
    image = void("img", src=_png(heat.share), alt=alt, class_="pixels", width=size, height=size)
    data = {"data_cells": cells, "data_totals": shares, "data_tokens": heat.tokens, "data_tip_pattern": heat.tip}
    names = json.dumps(list(heat.names), separators=(",", ":"))
    square = element("div", image, class_="square plot", data_names=names, data_label=heat.caption, **data)
    caption = element("figcaption", heat.caption)
    axis = element("p", heat.corner, class_="note axis-words")
    return element("figure", caption, axis, square, class_="heat")


def _png(share: Sequence[Sequence[float]]) -> str:
    """One pixel per cell: colour for diagonal or not, opacity for the share, so that it suits both themes."""
    strength = np.sqrt(np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0))
    size = len(strength)
    pixels = np.zeros((size, size, 4), dtype=np.uint8)
    pixels[..., :3] = OTHER
    pixels[np.arange(size), np.arange(size), :3] = DIAGONAL
    pixels[..., 3] = np.round(255 * strength)
    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
