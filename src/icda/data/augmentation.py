"""Random crops and flips of a whole batch at once, on bytes."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from icda.errors import InputError

PadMode = Literal["reflect", "constant"]


def check_padding(padding: int, size: tuple[int, int], mode: str) -> None:
    """Refuse a padding that cannot be reflected into an image of `size` (height, width)."""
    if mode not in get_args(PadMode):
        raise InputError(f"pad_mode is {mode!r}, expected one of {', '.join(get_args(PadMode))}.")
    if padding < 0:
        raise InputError(f"crop_padding is {padding}, expected 0 or more.")
    if mode == "reflect" and padding >= min(size):
        raise InputError(
            f"crop_padding {padding} cannot be reflected into images of {size[0]} x {size[1]}: "
            f"take at most {min(size) - 1}, or pad_mode='constant'."
        )


def crop_and_flip(
    images: Tensor, rows: Tensor, generator: torch.Generator, *, padding: int, flip: bool, mode: PadMode = "reflect"
) -> Tensor:
    """Take `rows` of `images` (N, H, W, C), each shifted by up to `padding` pixels and mirrored half of the time.

    The result equals padding every image, cropping a window of the old size and then flipping it. Yet nothing is
    padded: the window's coordinates are folded back into the image and all pixels of the batch are gathered in one go.

    >>> images = torch.arange(4, dtype=torch.uint8).view(1, 2, 2, 1)
    >>> crop_and_flip(images, torch.tensor([0, 0]), torch.Generator(), padding=1, flip=True).shape
    torch.Size([2, 2, 2, 1])
    """
    count, (height, width) = len(rows), images.shape[1:3]
    down, right, mirrored = draw_shifts(count, generator, padding=padding, flip=flip)
    lines = torch.arange(height) + down.view(-1, 1)
    columns = torch.arange(width).expand(count, width)
    columns = torch.where(mirrored.view(-1, 1), width - 1 - columns, columns) + right.view(-1, 1)
    first_line = rows.view(-1, 1) * height
    pixels = ((first_line + _fold(lines, height)) * width).unsqueeze(2) + _fold(columns, width).unsqueeze(1)
    taken = images.reshape(-1, images.shape[3]).index_select(0, pixels.flatten())
    taken = taken.view(count, *images.shape[1:])
    if mode == "constant":
        taken[_outside(lines, height).unsqueeze(2) | _outside(columns, width).unsqueeze(1)] = 0
    return taken


def draw_shifts(count: int, generator: torch.Generator, *, padding: int, flip: bool) -> tuple[Tensor, Tensor, Tensor]:
    """How far each of `count` crop windows lies below and right of its image, and whether it is mirrored."""
    down, right = torch.randint(-padding, padding + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (count,), generator=generator).bool() if flip else torch.zeros(count).bool()
    return down, right, mirrored


def _fold(position: Tensor, size: int) -> Tensor:
    """Reflect positions beyond an edge; the edge pixel itself is not repeated. The clamp only acts in constant mode."""
    return (size - 1 - (size - 1 - position.abs()).abs()).clamp_(0, size - 1)


def _outside(position: Tensor, size: int) -> Tensor:
    return (position < 0) | (position >= size)


class Normaliser:
    """From bytes (N, H, W, C) to standardised floats (N, C, H, W): (x / 255 - mean) / std, one figure per channel."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        if len(mean) != len(std) or min(std) <= 0:
            raise InputError(f"mean and std need one figure per channel, std above 0; got mean {mean} and std {std}.")
        self.mean, self.std = mean, std
        scale = 1.0 / torch.tensor(std, dtype=torch.float64)
        self._scale = (scale / 255.0).float()
        self._shift = (-torch.tensor(mean, dtype=torch.float64) * scale).float()

    def __call__(self, images: Tensor) -> Tensor:
        # For three channels NCHW stays a view of NHWC: that is channels_last, what CPU convolutions like best.
        values = torch.addcmul(self._shift, images.float(), self._scale).permute(0, 3, 1, 2)
        return values if images.shape[3] == 3 else values.contiguous()
