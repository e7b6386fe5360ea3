"""Samples as a reader sees them: pictures as data URIs, texts as they were written."""

import base64
import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from icda.data.augmentation import Normaliser
from icda.data.task import Split, Task
from icda.errors import InputError

LONGEST_SIDE = 96  # larger pictures are made smaller: a page holds many
PNG_SIDE = 32  # up to here PNG is as small as WebP, and exact
LONGEST_TEXT = 400


def to_pixels(inputs: Tensor, normaliser: Normaliser | None) -> Tensor:
    """Standardised images (N, C, H, W) in [0, 1]; without a normaliser each is stretched from darkest to brightest."""
    if normaliser is None:
        low, high = inputs.amin((1, 2, 3), keepdim=True), inputs.amax((1, 2, 3), keepdim=True)
        return (inputs - low) / (high - low).clamp(min=1e-12)
    mean, std = _channel_scale(normaliser, inputs)
    return (inputs * std + mean).clamp(0, 1)


def pixels_of(split: Split, inputs: Tensor) -> Tensor:
    """Inputs (N, C, H, W) of a split as pixels in [0, 1], by what its source says of how it standardises them."""
    return to_pixels(inputs, getattr(split.source, "normaliser", None))


def to_inputs(pixels: Tensor, normaliser: Normaliser | None) -> Tensor:
    """The way back from pixels in [0, 1] to what the network reads."""
    if normaliser is None:
        return pixels
    mean, std = _channel_scale(normaliser, pixels)
    return (pixels - mean) / std


def _channel_scale(normaliser: Normaliser, like: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = (like.new_tensor(values)[:, None, None] for values in (normaliser.mean, normaliser.std))
    return mean, std


def data_uri(pixels: Tensor) -> str:
    """A small picture (C, H, W) in [0, 1] as a data URI: PNG up to 32 pixels a side, WebP beyond."""
    picture = Image.fromarray(to_bytes(pixels))
    if max(picture.size) > LONGEST_SIDE:
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    kind = "png" if max(picture.size) <= PNG_SIDE else "webp"
    buffer = io.BytesIO()
    picture.save(buffer, kind.upper(), **({"quality": 85} if kind == "webp" else {"optimize": False}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def to_bytes(pixels: Tensor) -> np.ndarray:
    """(C, H, W) in [0, 1] as bytes: (H, W) when grey, else (H, W, 3); two channels get an empty third."""
    array = (pixels.detach().cpu().float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    if array.shape[2] == 1:
        return np.ascontiguousarray(array[:, :, 0])
    if array.shape[2] == 2:
        array = np.concatenate([array, np.zeros_like(array[:, :, :1])], 2)
    return np.ascontiguousarray(array[:, :, :3])


# Five colours of matplotlib's inferno, dark to bright: brightness alone tells them apart.
_HEAT_COLOURS = ((0.0, 0.0, 0.02), (0.34, 0.06, 0.43), (0.74, 0.21, 0.33), (0.98, 0.56, 0.04), (0.99, 1.0, 0.64))


def heat_overlay(pixels: Tensor, heat: Tensor, opacity: float = 0.6) -> Tensor:
    """A picture (C, H, W) in grey under its heat (H, W) in colour, brightest where the heat is highest: (3, H, W)."""
    grey = pixels.mean(0, keepdim=True).expand(3, -1, -1)
    level = heat / heat.max().clamp(min=1e-12) * (len(_HEAT_COLOURS) - 1)
    colours = torch.tensor(_HEAT_COLOURS, dtype=pixels.dtype)
    below = level.floor().long().clamp(max=len(_HEAT_COLOURS) - 2)
    painted = torch.lerp(colours[below], colours[below + 1], (level - below)[:, :, None].to(colours)).permute(2, 0, 1)
    return torch.lerp(grey, painted, opacity)


def centre_box(maps: Tensor) -> Tensor:
    """The part of maps (N, H, W) in the box of half the side lengths in the middle: a view."""
    height, width = maps.shape[1:]
    top, left = height // 4, width // 4
    return maps[:, top : height - top, left : width - left]


def has_pictures(task: Task) -> bool:
    return task.input_kind == "image" and len(task.input_shape) == 3


def require_pictures(task: Task, what: str) -> None:
    if not has_pictures(task):
        kind = f"{task.input_kind} of shape {task.input_shape}"
        raise InputError(f"{what} needs images, but the samples of task {task.name!r} are {kind}: leave it out.")


def show_samples(task: Task, split: Split, positions: Tensor) -> list[dict[str, str]]:
    """For each sample {"picture": uri} or {"text": words}; {} where the task has neither, such as features."""
    if has_pictures(task):
        return [{"picture": data_uri(image)} for image in pixels_of(split, split.batch(positions).inputs)]
    texts = getattr(split.source, "texts", None)
    if texts is None:
        return [{} for _ in positions]
    words = [texts[row] for row in split.rows[positions].tolist()]
    return [{"text": t if len(t) <= LONGEST_TEXT else f"{t[: LONGEST_TEXT - 1].rstrip()}…"} for t in words]
