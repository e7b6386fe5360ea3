"""MNIST: plain, coloured as in LISA, and five thousand of its images with wrong labels.

The small tasks are learnt by a small network in seconds when labels are right. On smaller tasks of harder images nothing
can be seen of wrong labels: a network that gets a quarter of the test right has no right answer to hold against one.
"""

from __future__ import annotations

import gzip
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.colour import CLASSES, GROUP_COLOURS, GROUP_NAMES, flip_some, group_of, paint
from icda.data.bias.noise import noisy_labels
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
VALIDATION, METADATA = 500, 10  # images of each digit
SMALL_TRAIN, SMALL_VALIDATION = 500, 50
NOISES = {"": ("uniform", 0), "_flip_40": ("flip2", 40), "_uniform_40": ("uniform", 40)}
LABEL_FLIP = 0.25
CMNIST_SPLITS = {"train": (0, 30000, 0.2), "validation": (30000, 40000, 0.5), "test": (40000, 60000, 0.9)}


@TASKS.register("mnist")
def mnist(root: Path | None, seed: int) -> Task:
    """The ten digits of MNIST; validation (500 a digit) and metadata (10) are taken from the training images."""
    _, digits, _, _ = read_mnist(root)
    validation, metadata, train = take_per_class(digits, [VALIDATION, METADATA], generator_for(seed, "mnist"))
    story = "MNIST, 28 x 28 grey; 5,000 training images are kept for validation, 100 as metadata."
    return _grey_task("mnist", root, train, validation, metadata, story)


def mnist_5k(root: Path | None, seed: int, *, suffix: str) -> Task:
    """500 images of each digit; with noise, 40 % of the labels turn into one of two others or are drawn again."""
    kind, percent = NOISES[suffix]
    _, digits, _, _ = read_mnist(root)
    sizes = [SMALL_TRAIN, SMALL_VALIDATION, METADATA]
    train, validation, metadata, _ = take_per_class(digits, sizes, generator_for(seed, "mnist_5k"))
    given = None
    if percent:
        given = noisy_labels(digits[train], kind, 10, percent / 100, generator_for(seed, f"mnist_5k{suffix}"))
    noise = f"{kind} label noise {percent} %" if percent else "labels right"
    story = f"MNIST, 5,000 training images, {noise}; validation, test and metadata (ten of a digit) are right."
    return _grey_task(f"mnist_5k{suffix}", root, train, validation, metadata, story, given)


for _suffix in NOISES:
    TASKS.register(f"mnist_5k{_suffix}")(partial(mnist_5k, suffix=_suffix))


def _grey_task(
    name: str,
    root: Path | None,
    train: Tensor,
    validation: Tensor,
    metadata: Tensor,
    story: str,
    given: Tensor | None = None,
) -> Task:
    images, digits, test_images, test_digits = read_mnist(root)
    source, test_source = (ImageArray(part.unsqueeze(3), (MEAN,), (STD,)) for part in (images, test_images))
    clean = digits[train]
    return Task(
        name=name,
        num_classes=10,
        train=Split(source, train, clean) if given is None else Split(source, train, given, None, clean),
        validation=Split(source, validation, digits[validation]),
        test=Split(test_source, torch.arange(len(test_digits)), test_digits),
        metadata=Split(source, metadata, digits[metadata]),
        input_shape=(1, 28, 28),
        default_model="small_cnn",
        description=story,
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
    everything = Split(source, torch.arange(len(targets)), targets, groups, clean)
    splits = {name: everything.subset(torch.arange(start, stop)) for name, (start, stop, _) in CMNIST_SPLITS.items()}
    return Task(
        name="cmnist",
        num_classes=2,
        **splits,  # type: ignore[arg-type]
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
