"""Grids of pictures as matplotlib figures: heat maps of several runs, counterfactuals of several augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from icda.explain.pictures import heat_overlay, to_bytes
from icda.explain.plots import new_figure

RIGHT, WRONG = "#0072B2", "#D55E00"
CELL = 1.35  # inches


@dataclass(frozen=True)
class Cell:
    """A picture (C, H, W) in [0, 1] with a line below it; `good` paints the line blue or orange, None leaves it black."""

    pixels: Tensor
    caption: str
    good: bool | None = None


def draw_grid(rows: Sequence[tuple[str, Sequence[Cell | None]]], title: str, note: str = "") -> Any:
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


def heat_cells(pixels: Tensor, heat: Tensor, captions: Sequence[str], good: Sequence[bool]) -> list[Cell]:
    """Overlays of heat (N, H, W) on pictures, with the centre box drawn as a thin line."""
    cells = []
    for image, warm, caption, right in zip(pixels, heat, captions, good, strict=True):
        cells.append(Cell(with_centre_box(heat_overlay(image, warm)), caption, right))
    return cells


def with_centre_box(pixels: Tensor) -> Tensor:
    """The picture (3, H, W) with the border of the box that `centre_share` counts in white.

    >>> import torch
    >>> with_centre_box(torch.zeros(3, 8, 8))[0, 2].tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    """
    height, width = pixels.shape[1:]
    top, left = height // 4, width // 4
    boxed = pixels.clone()
    inside = boxed[:, top : height - top, left : width - left]
    inside[:, [0, -1], :] = 1
    inside[:, :, [0, -1]] = 1
    return boxed
