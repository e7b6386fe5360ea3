"""Image files of strangers, opened with care: only the formats we name, no giants, every bit depth scaled to bytes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from icda.errors import InputError, UnreadableError
from icda.limits import LARGEST_PIXELS

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# What these suffixes stand for. Pillow looks at the content, not at the name: without this list a PostScript file called
# e.png would be run by Ghostscript.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
DECODER_THREADS = 4
NAMED_PATHS = 10
MARGIN = 256 / 224

Prepare = Callable[[Image.Image, int], Image.Image]


class UnreadableImageError(UnreadableError):
    """A file that should be an image cannot be decoded; the message names it."""


class UnreadableInputsError(UnreadableImageError):
    """Several inputs cannot be read; the message names them."""


def open_rgb(path: Path, draft: int | None = None) -> Image.Image:
    """An image file as RGB, upright if its camera said so; a JPEG may be decoded small, near `draft` pixels a side."""
    with Image.open(path, formats=FORMATS) as image:
        if image.width * image.height > LARGEST_PIXELS:
            raise InputError(f"{image.width} x {image.height} pixels, at most {LARGEST_PIXELS} are read")
        if draft is not None:
            image.draft("RGB", (draft, draft))  # several times faster
        return to_bytes(ImageOps.exif_transpose(image)).convert("RGB")


def decode_image(path: Path, size: int, prepare: Prepare | None = None) -> np.ndarray:
    """One file as RGB bytes (size, size, 3), squeezed, or cut out as `prepare` does."""
    try:
        if prepare is not None:
            return np.asarray(prepare(open_rgb(path), size))
        return np.asarray(open_rgb(path, draft=size).resize((size, size), Image.Resampling.BILINEAR))
    except Exception as error:  # what a decoder raises on a broken file depends on the format
        raise UnreadableImageError(f"cannot read the image {path} ({error}): repair it or take it out.") from error


def central_square(image: Image.Image, size: int) -> Image.Image:
    """The largest square around the centre, resized: of CelebA's 178 x 218 pixels the middle 178 x 178."""
    side = min(image.size)
    left, top = (round((length - side) / 2) for length in image.size)
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)


def inner_square(image: Image.Image, size: int) -> Image.Image:
    """The whole image squeezed to a square 256/224 as large as asked for, of which the middle is kept."""
    side = int(size * MARGIN)
    start = round((side - size) / 2)
    squeezed = image.resize((side, side), Image.Resampling.BILINEAR)
    return squeezed.crop((start, start, start + size, start + size))


def to_bytes(image: Image.Image) -> Image.Image:
    """An image whose pixels are wider than a byte, scaled; Pillow's own conversion would clip them to white.

    Whole numbers are taken as 16 bits, 65,535 becoming 255. Floats must lie in [0, 1] or in [0, 255]: what other floats
    mean as a picture is not ours to guess.
    """
    if not (image.mode.startswith("I") or image.mode == "F"):
        return image
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    largest = 65535.0 if image.mode != "F" else 1.0 if high <= 1 else 255.0
    if not (low >= 0 and high <= largest):
        raise InputError(f"values from {low:g} to {high:g}, expected 0 to {largest:g}")
    return Image.fromarray(np.round(values * (255 / largest)).astype(np.uint8))


def decode_images(
    paths: Sequence[Path], size: int, prepare: Prepare | None = None, threads: int = DECODER_THREADS
) -> Iterator[np.ndarray | UnreadableImageError]:
    """`decode_image` of each file in order; where one cannot be read, the error."""

    def decode(path: Path) -> np.ndarray | UnreadableImageError:
        try:
            return decode_image(path, size, prepare)
        except UnreadableImageError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(decode, paths)


def find_unreadable(paths: Sequence[Path], size: int, prepare: Prepare | None = None) -> list[Path]:
    """Those files that cannot be decoded, in order."""
    decoded = zip(paths, decode_images(paths, size, prepare), strict=True)
    return [path for path, image in decoded if isinstance(image, UnreadableImageError)]


def unreadable(paths: Sequence[Path], fault: str, remedy: str) -> UnreadableInputsError:
    """The error that names the first few of many files."""
    named = "".join(f"\n  {path}" for path in paths[:NAMED_PATHS])
    more = f"\n  and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
    return UnreadableInputsError(f"{len(paths)} file(s) {fault}:{named}{more}\n{remedy}")
