"""Random changes of a whole batch of images, on bytes: crops and flips, and RandAugment."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from icda.errors import InputError


def check_padding(padding: int, size: tuple[int, int]) -> None:
    """Refuse a padding that cannot be reflected into an image of `size` (height, width)."""
    if not 0 <= padding < min(size):
        raise InputError(
            f"crop_padding {padding} cannot be reflected into images of {size[0]} x {size[1]}: take 0 to {min(size) - 1}."
        )


def crop_and_flip(images: Tensor, rows: Tensor, generator: torch.Generator, *, padding: int, flip: bool) -> Tensor:
    """Take `rows` of `images` (N, H, W, C), each shifted by up to `padding` pixels and mirrored half of the time.

    The result equals padding every image by reflection, cropping a window of the old size and then flipping it. Yet
    nothing is padded: the window's coordinates are folded back into the image, and all pixels are gathered in one go.
    """
    count, (height, width) = len(rows), images.shape[1:3]
    down, right, mirrored = draw_shifts(count, generator, padding=padding, flip=flip)
    lines = torch.arange(height) + down.view(-1, 1)
    columns = torch.arange(width).expand(count, width)
    columns = torch.where(mirrored.view(-1, 1), width - 1 - columns, columns) + right.view(-1, 1)
    first_line = rows.view(-1, 1) * height
    pixels = ((first_line + _fold(lines, height)) * width).unsqueeze(2) + _fold(columns, width).unsqueeze(1)
    taken = images.reshape(-1, images.shape[3]).index_select(0, pixels.flatten())
    return taken.view(count, *images.shape[1:])


def draw_shifts(count: int, generator: torch.Generator, *, padding: int, flip: bool) -> tuple[Tensor, Tensor, Tensor]:
    """How far each of `count` crop windows lies below and right of its image, and whether it is mirrored."""
    down, right = torch.randint(-padding, padding + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (count,), generator=generator).bool() if flip else torch.zeros(count).bool()
    return down, right, mirrored


def _fold(position: Tensor, size: int) -> Tensor:
    """Reflect positions beyond an edge; the edge pixel itself is not repeated."""
    return size - 1 - (size - 1 - position.abs()).abs()


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


MAX_MAGNITUDE = 30
DEGREES, SHEAR, ENHANCEMENT, BITS = 30.0, 0.3, 0.9, 4  # at full strength
SHIFT = 150 / 331  # of a side; 150 pixels of ImageNet's 331 where the figure comes from

Operation = Callable[[Image.Image, float], Image.Image]  # a strength in [-1, 1]; some do not ask for its sign


class RandAugment:
    """Changes each image by `num_ops` operations, drawn with replacement, of strength `magnitude` / 30.

    Where one of `OPERATIONS` has two directions (a rotation, more or less contrast) a coin decides. Takes and gives
    bytes (N, H, W, C) with one or three channels. Pixels that come from outside are black.

    Reference: Cubuk et al., "RandAugment: practical automated data augmentation with a reduced search space", NeurIPS
    2020.
    """

    def __init__(self, num_ops: int = 2, magnitude: float = 9) -> None:
        if isinstance(num_ops, bool) or not isinstance(num_ops, int) or num_ops < 0:
            raise InputError(f"num_ops is how many operations are applied to an image, 0 or more, got {num_ops}.")
        if not 0 <= magnitude <= MAX_MAGNITUDE:
            raise InputError(f"magnitude lies in [0, {MAX_MAGNITUDE}], got {magnitude}.")
        self.num_ops, self.magnitude = num_ops, magnitude

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[3] not in (1, 3):
            raise InputError(f"RandAugment expects uint8 (N, H, W, 1 or 3), got {images.dtype} {tuple(images.shape)}.")
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
