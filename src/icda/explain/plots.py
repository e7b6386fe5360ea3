"""Matplotlib figures of several runs: margins, mapped variances, and grids of pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icda.explain.margins import edges_around_zero
from icda.explain.pictures import centre_box, to_bytes
from icda.extras import require

# Okabe and Ito's colours, told apart with any colour vision; line styles tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES: tuple[Any, ...] = ("-", (0, (7, 2)), (0, (5, 1.5, 1.2, 1.5)), (0, (1.6, 0.9)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LOG_RANGE = 30  # from this ratio between the runs' last values on, an axis is logarithmic
BINS = 32
RIGHT, WRONG = "#0072B2", "#D55E00"
CELL = 1.35  # inches


def look(number: int) -> dict[str, Any]:
    """Colour and line style of the run with that number."""
    # Seven colours and four styles have no common divisor: 28 runs look different.
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}


def new_figure(width: float, height: float, dpi: int = 110) -> Any:
    """An empty figure of so many inches, which needs no screen."""
    require("matplotlib", "explain", "figures")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=dpi)


def plot_margins(
    margins: Mapping[str, Tensor], distances: Mapping[str, Tensor], title: str
) -> tuple[Any, list[dict[str, Any]]]:
    """Distributions of margins and of distances from the nearest boundary, and the bars' numbers."""
    figure = new_figure(10, 4.2)
    left, right = figure.subplots(1, 2)
    rows = _histogram(left, margins, "margin") + _histogram(right, distances, "distance")
    left.set(xlabel="margin  z_y − max z_c  (logits)", ylabel="share of samples", title="Margins")
    right.set(xlabel="signed distance to the nearest boundary (features)", title="Distances from the boundary")
    left.legend(frameon=False, loc="upper left", title="thin lines: medians", title_fontsize=9, alignment="left")
    figure.suptitle(title)
    return figure, rows


def _histogram(axes: Any, values: Mapping[str, Tensor], quantity: str) -> list[dict[str, Any]]:
    edges = edges_around_zero(torch.cat(list(values.values())), bins=BINS)
    rows = []
    for number, (label, own) in enumerate(values.items()):
        counts = torch.histogram(own.double(), edges).hist
        shares = counts / len(own)
        axes.stairs(shares.numpy(), edges.numpy(), label=label, linewidth=2, **look(number))
        axes.axvline(float(own.median()), linewidth=1, alpha=0.6, **look(number))
        for low, high, count, share in zip(edges, edges[1:], counts, shares, strict=False):
            counted = {"from": f"{low:.6g}", "to": f"{high:.6g}", "samples": int(count), "share": f"{share:.6f}"}
            rows.append({"run": label, "quantity": quantity, **counted})
    axes.axvline(0, color="0.35", linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top"}
    for word, side, shift in (("wrong", "right", -5), ("right", "left", 5)):
        axes.annotate(word, (0, 1), xytext=(shift, -2), ha=side, color="0.35", fontsize=9, **place)
    return rows


def plot_variances(figures: Mapping[str, Mapping[str, Any]], title: str) -> tuple[Any, list[dict[str, Any]]]:
    """Mapped variances over training on own and on unrelated boundaries, and the numbers of the curves.

    Lines are the running statistics that the loss reads, markers the trained network's own features, which every method
    has.
    """
    panels = [name for name in ("own", "unrelated") if any(variances[name] for variances in figures.values())]
    figure = new_figure(5.2 * len(panels), 4.2)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    last = max(max(variances["epochs"]) for variances in figures.values())
    for axes, name in zip(grid, panels, strict=True):
        ends: list[float] = []
        for number, (label, variances) in enumerate(figures.items()):
            ends += _curve(axes, number, label, variances, name, last)
        if min(ends) > 0 and max(ends) / min(ends) > LOG_RANGE:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.25 * axes.get_ylim()[1] if axes is grid[0] else None)  # room for the legend
        axes.spines[["top", "right"]].set_visible(False)
        belongs = "they belong to" if name == "own" else "between two other classes"
        axes.set(xlabel="epoch", ylabel="mean mapped variance", title=f"Classes on boundaries {belongs}")
    lines = "lines: running statistics\nmarkers: trained network, one pass"
    grid[0].legend(frameon=False, loc="upper left", title=lines, title_fontsize=9, alignment="left")
    figure.suptitle(title)
    return figure, variance_rows(figures)


def _curve(axes: Any, number: int, label: str, variances: Mapping[str, Any], name: str, last: int) -> list[float]:
    """Draw a run's line and marker; returns where they end."""
    trained, logged = variances["trained"][name], variances["logged"][name]
    if logged:
        epochs = [epoch + 1 for epoch in variances["logged"]["epochs"]]
        axes.plot(epochs, logged, linewidth=2, **look(number))
    if trained is not None:
        beside = (last + 1) * (1.03 + 0.025 * number)  # side by side: methods often end at the same value
        axes.plot([beside], [trained], MARKERS[number % len(MARKERS)], color=look(number)["color"], markersize=7)
    line = look(number) if logged else {"color": look(number)["color"], "linestyle": "none"}
    axes.plot([], [], label=label, marker=MARKERS[number % len(MARKERS)], markersize=6, linewidth=2, **line)
    return [*logged[-1:], *([] if trained is None else [trained])]


def variance_rows(figures: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per epoch of every run, then one for its trained network."""
    rows = []
    for label, variances in figures.items():
        logged = variances["logged"]
        unrelated: Sequence[Any] = logged["unrelated"] or [None] * len(logged["epochs"])
        running = ("running statistics",) * len(unrelated)
        entries = list(zip(running, logged["epochs"], logged["own"], unrelated, strict=True))
        entries.append(("trained network", variances["epochs"][-1], *variances["trained"].values()))
        for source, epoch, own, other in entries:
            figures_of = {"own": f"{own:.6g}", "unrelated": "" if other is None else f"{other:.6g}"}
            rows.append({"run": label, "epoch": epoch + 1, "source": source, **figures_of})
    return rows


@dataclass(frozen=True)
class PictureCell:
    """A picture (C, H, W) in [0, 1] with a line below it; `good` paints the line blue or orange, None leaves it black."""

    pixels: Tensor
    caption: str
    good: bool | None = None


def draw_grid(rows: Sequence[tuple[str, Sequence[PictureCell | None]]], title: str, note: str = "") -> Any:
    """Named rows of cells as one figure; None leaves a place empty."""
    columns = max(len(cells) for _, cells in rows)
    figure = new_figure(CELL * columns + 1.0, (CELL + 0.28) * len(rows) + 0.7)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes, (name, cells) in zip(grid, rows, strict=True):
        for place, (axis, cell) in enumerate(zip(axes, [*cells, *[None] * (columns - len(cells))], strict=True)):
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_visible(False)
            if place == 0:
                axis.set_ylabel(name, fontsize=9)
            if cell is None:
                continue
            picture = to_bytes(cell.pixels)
            axis.imshow(picture, cmap="gray" if picture.ndim == 2 else None, vmin=0, vmax=255, interpolation="nearest")
            colour = "black" if cell.good is None else RIGHT if cell.good else WRONG
            axis.set_xlabel(cell.caption, fontsize=7.5, color=colour, labelpad=2)
    figure.suptitle(title, fontsize=11)
    if note:
        figure.supxlabel(note, fontsize=8, color="0.35")
    return figure


def with_centre_box(pixels: Tensor) -> Tensor:
    """The picture (3, H, W) with the border of the box that `centre_share` counts in white."""
    boxed = pixels.clone()
    inside = centre_box(boxed)
    inside[:, [0, -1], :] = 1
    inside[:, :, [0, -1]] = 1
    return boxed
