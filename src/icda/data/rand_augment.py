"""RandAugment: a few of fourteen changes of a picture, drawn at random, all of one strength."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from icda.errors import InputError

MAX_MAGNITUDE = 30
DEGREES, SHEAR, ENHANCEMENT, BITS = 30.0, 0.3, 0.9, 4  # at full strength
SHIFT = 150 / 331  # of a side; 150 pixels of ImageNet's 331 where the figure comes from

Operation = Callable[[Image.Image, float], Image.Image]  # a strength in [-1, 1]; some do not ask for its sign


class RandAugment:
    """Changes each image by `num_ops` operations, drawn with replacement, of strength `magnitude` / 30.

    The operations are those of `OPERATIONS`; where one has two directions (a rotation, more or less contrast) a coin
    decides. What is drawn depends on the generator and the number of images alone. Pixels that come from outside are
    black, and geometric operations take the nearest pixel. Grey images stay grey.

    Takes and gives bytes (N, H, W, C) with one or three channels.

    Reference: Cubuk et al., "RandAugment: practical automated data augmentation with a reduced search space", NeurIPS 2020.

    >>> images = torch.zeros(4, 8, 8, 1, dtype=torch.uint8)
    >>> RandAugment(num_ops=2, magnitude=9)(images, torch.Generator()).shape
    torch.Size([4, 8, 8, 1])
    """

    def __init__(self, num_ops: int = 2, magnitude: float = 9) -> None:
        if isinstance(num_ops, bool) or not isinstance(num_ops, int) or num_ops < 0:
            raise InputError(f"num_ops is how many operations are applied to an image, 0 or more, got {num_ops}.")
        if not 0 <= magnitude <= MAX_MAGNITUDE:
            raise InputError(f"magnitude lies in [0, {MAX_MAGNITUDE}], got {magnitude}.")
        self.num_ops, self.magnitude = num_ops, magnitude

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        _check_images(images)
        drawn = (len(images), self.num_ops)
        chosen = torch.randint(len(OPERATIONS), drawn, generator=generator).tolist()
        signs = (2 * torch.randint(2, drawn, generator=generator) - 1).tolist()
        operations, strength = list(OPERATIONS.values()), self.magnitude / MAX_MAGNITUDE
        # Pillow expects grey images without an axis for channels.
        pixels = images.squeeze(3).numpy() if images.shape[3] == 1 else images.numpy()
        changed = np.empty_like(pixels)
        for number, (own, directions) in enumerate(zip(chosen, signs, strict=True)):
            picture = Image.fromarray(pixels[number])
            for operation, sign in zip(own, directions, strict=True):
                picture = operations[operation](picture, sign * strength)
            changed[number] = picture
        return torch.from_numpy(changed).view(images.shape)

    def __repr__(self) -> str:
        return f"RandAugment(num_ops={self.num_ops}, magnitude={self.magnitude:g})"


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[3] not in (1, 3):
        raise InputError(
            f"RandAugment expects uint8 images of shape (N, H, W, 1) or (N, H, W, 3), got {images.dtype} "
            f"{tuple(images.shape)}."
        )


def _affine(image: Image.Image, *coefficients: float) -> Image.Image:
    """The pixel at (x, y) comes from (a x + b y + c, d x + e y + f)."""
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.NEAREST)


def _enhancement(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength: kind(image).enhance(1 + ENHANCEMENT * strength)


OPERATIONS: dict[str, Operation] = {
    "identity": lambda image, strength: image,
    "auto_contrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
    "rotate": lambda image, strength: image.rotate(DEGREES * strength, Image.Resampling.NEAREST),
    "solarize": lambda image, strength: ImageOps.solarize(image, round(256 * (1 - abs(strength)))),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(BITS * abs(strength))),
    "colour": _enhancement(ImageEnhance.Color),
    "contrast": _enhancement(ImageEnhance.Contrast),
    "brightness": _enhancement(ImageEnhance.Brightness),
    "sharpness": _enhancement(ImageEnhance.Sharpness),
    "shear_x": lambda image, strength: _affine(image, 1, SHEAR * strength, 0, 0, 1, 0),
    "shear_y": lambda image, strength: _affine(image, 1, 0, 0, SHEAR * strength, 1, 0),
    "translate_x": lambda image, strength: _affine(image, 1, 0, SHIFT * strength * image.width, 0, 1, 0),
    "translate_y": lambda image, strength: _affine(image, 1, 0, 0, 0, 1, SHIFT * strength * image.height),
}
