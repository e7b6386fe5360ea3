"""How much memory a file may ask for: every limit, checked before anything is allocated.

A file may be a stranger's. What it unpacks to is bounded by its size on the disk, which its owner sees.
"""

from pathlib import Path

from icda.errors import InputError

LARGEST_FACTS = 2**24  # bytes of model.json; a model of 100,000 classes has less
LARGEST_WEIGHTS = 2**33  # bytes of weights.safetensors
LARGEST_JSON = 2**27  # bytes of what a run writes: results, explanations with pictures
LARGEST_PIXELS = 2**26  # of an image file: 67 million, some 0.5 GB while decoding
LARGEST_SIDE = 1024  # pixels a side of the images that a network or encoder is given
LONGEST_NAME = 1000  # characters of a class or group; a longer one is a text in the wrong column
LARGEST_NAMES = 2**26  # characters of all names of classes, each counted as the longest
UNPACKED_FREE = 2**30  # bytes that any archive or Parquet file may unpack to
UNPACKED_RATIO = 50  # and so many more for each byte that it has on the disk


def read_small(path: Path, most: int) -> bytes:
    """The content of a file of at most so many bytes."""
    if path.stat().st_size > most:
        raise InputError(f"{path} has {path.stat().st_size} bytes, more than such a file has ({most}).")
    return path.read_bytes()


def check_unpacked(path: Path, unpacked: int) -> None:
    """Refuse a file that would unpack to far more than it is."""
    packed = path.stat().st_size
    if unpacked > UNPACKED_FREE + UNPACKED_RATIO * packed:
        raise InputError(
            f"{path} has {packed} bytes and would take {unpacked / 2**30:.1f} GiB of memory: more than is read from a file "
            "of its size. If it is your own, save it uncompressed, or in parts."
        )


def check_side(image_size: int, origin: str) -> None:
    """Refuse images of a size that no batch of them has room for."""
    if not 1 <= image_size <= LARGEST_SIDE:
        raise InputError(f"{origin}: the image size is {image_size}, expected 1 to {LARGEST_SIDE} pixels a side.")
