"""MNIST, plain and coloured as in LISA."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.colour import CLASSES, GROUP_COLOURS, GROUP_NAMES, flip_some, group_of, paint
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import DatasetNotFoundError, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task
from icda.errors import InputError

HOME = "the MNIST database of handwritten digits by LeCun, Cortes and Burges (torchvision and Hugging Face mirror it)"
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MEAN, STD = 0.1307, 0.3081
VALIDATION, METADATA = 500, 10
LABEL_FLIP = 0.25
CMNIST_SPLITS = {"train": (0, 30000, 0.2), "validation": (30000, 40000, 0.5), "test": (40000, 60000, 0.9)}


@TASKS.register("mnist")
def mnist(root: Path | None, seed: int) -> Task:
    """The ten digits of MNIST; validation (500 a digit) and metadata (10) are taken from the training images."""
    images, digits, test_images, test_digits = read_mnist(root)
    validation, metadata, train = take_per_class(digits, [VALIDATION, METADATA], generator_for(seed, "mnist"))
    source = ImageArray(images.unsqueeze(3), (MEAN,), (STD,))
    test_source = ImageArray(test_images.unsqueeze(3), (MEAN,), (STD,))
    return Task(
        name="mnist",
        num_classes=10,
        train=Split(source, train, digits[train]),
        validation=Split(source, validation, digits[validation]),
        test=Split(test_source, torch.arange(len(test_digits)), test_digits),
        metadata=Split(source, metadata, digits[metadata]),
        input_shape=(1, 28, 28),
        default_model="small_cnn",
        description="MNIST, 28 x 28 grey; 5,000 training images are kept for validation, 100 as metadata.",
    )


@TASKS.register("cmnist", "coloured_mnist", "colored_mnist")
def cmnist(root: Path | None, seed: int) -> Task:
    """Coloured MNIST by the protocol of LISA, whose noise keeps any predictor's worst group at or below 75 %.

    The label, digit >= 5, is wrong in a quarter of all samples; the colour follows that label in 80 % of train, 50 % of
    validation and 10 % of test. Only the 60,000 training images of MNIST are used, in their order. Differs from the
    original in that chance comes from `seed`; there it was NumPy's global state, so its very draw cannot be had.
    """
    images, digits, _, _ = read_mnist(root)
    generator = generator_for(seed, "cmnist")
    clean = (digits >= 5).long()
    targets = flip_some(clean, LABEL_FLIP, generator)
    colours = targets.clone()
    for start, stop, flip in CMNIST_SPLITS.values():
        colours[start:stop] = flip_some(targets[start:stop], flip, generator)
    groups = group_of(targets, colours)
    source = ImageArray(paint(images, colours), (MEAN, MEAN, 0.0), (STD,) * 3)
    splits = {}
    for name, (start, stop, _) in CMNIST_SPLITS.items():
        part = slice(start, stop)
        splits[name] = Split(source, torch.arange(start, stop), targets[part], groups[part], clean[part])
    return Task(
        name="cmnist",
        num_classes=2,
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        group_names=GROUP_NAMES,
        group_attributes=GROUP_COLOURS,
        class_names=CLASSES,
        input_shape=(3, 28, 28),
        default_model="small_cnn",
        description="Coloured MNIST (LISA): 25 % label noise in all splits; colour agrees with the label on 80 % of "
        "train, 50 % of validation, 10 % of test. Worst-group accuracy beyond 75 % means leakage or luck.",
    )


def read_mnist(root: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (60000, 28, 28) as bytes, their digits, and the same for the 10,000 test images."""
    layouts = [(folder, FILES[0] + end) for folder in ("mnist", "MNIST/raw") for end in (".gz", "")]
    return _read_folder(find_folder(root, "MNIST", layouts, f"{', '.join(FILES)}, plain or as .gz", HOME).resolve())


@lru_cache(maxsize=1)
def _read_folder(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images, digits, test_images, test_digits = (torch.from_numpy(read_idx(_locate(folder, name))) for name in FILES)
    return images, digits.long(), test_images, test_digits.long()


def _locate(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise DatasetNotFoundError(f"MNIST in {folder} is not complete: {name}, plain or as .gz, is missing.")


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes from an idx file, gzipped or not: magic number 0 0 8 d, then d big-endian sizes, then data."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InputError(f"{path} is no idx file of unsigned bytes: it begins with {content[:4].hex(' ')}.")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(int)
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if len(shape) != dimensions or values.size != shape.prod():
        raise InputError(f"{path} is cut short: {values.size} bytes for shape {tuple(shape)}. Fetch it again.")
    return values.reshape(shape).copy()
