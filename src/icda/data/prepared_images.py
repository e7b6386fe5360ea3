"""Image files cut and resized the way a benchmark prescribes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from icda.data.images import UnreadableImageError, open_rgb
from icda.data.sources import ImageFiles

Prepare = Callable[[Image.Image, int], Image.Image]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MARGIN = 256 / 224


class PreparedImages(ImageFiles):
    """Image files that `prepare` turns into `size` x `size` pixels; everything else as in `ImageFiles`.

    Values are standardised with ImageNet's mean and standard deviation, as the pretrained networks of these benchmarks
    need them. Without `crop_padding` and `flip` training images are not augmented, which is the original recipe.
    """

    remedy = "Fetch them again."

    def __init__(self, paths: Sequence[Path], size: int, prepare: Prepare, **options: Any) -> None:
        super().__init__(paths, size, IMAGENET_MEAN, IMAGENET_STD, **options)
        self.prepare = prepare

    def _decode_one(self, path: Path) -> np.ndarray:
        try:
            return np.asarray(self.prepare(open_rgb(path), self.size))
        except Exception as error:  # what a decoder raises on a broken file depends on the format
            raise UnreadableImageError(f"cannot read the image {path} ({error}): fetch it again.") from error

    @cached_property
    def fingerprint(self) -> str:
        files: str = super().fingerprint
        return hashlib.sha256(f"{self.prepare.__name__} {files}".encode()).hexdigest()


def central_square(image: Image.Image, size: int) -> Image.Image:
    """The largest square around the centre, resized: of CelebA's 178 x 218 pixels the middle 178 x 178.

    >>> central_square(Image.new("RGB", (178, 218)), 64).size
    (64, 64)
    """
    side = min(image.size)
    left, top = (round((length - side) / 2) for length in image.size)
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)


def inner_square(image: Image.Image, size: int) -> Image.Image:
    """The whole image squeezed to a square 256/224 as large as asked for, of which the middle is kept.

    >>> inner_square(Image.new("RGB", (500, 333)), 224).size
    (224, 224)
    """
    side = int(size * MARGIN)
    start = round((side - size) / 2)
    squeezed = image.resize((side, side), Image.Resampling.BILINEAR)
    return squeezed.crop((start, start, start + size, start + size))
