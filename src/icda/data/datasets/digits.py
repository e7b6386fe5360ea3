"""Handwritten digits, plain, long-tailed, in colour and with wrong labels: scikit-learn's of 8 x 8 pixels, and MNIST.

The tasks of scikit-learn's 1,797 digits need no download. They share one cut, made by the data seed: of each digit 50
images are for test, 10 for validation, 10 are metadata, and the rest, 104 to 113, is what a bias is built from. Test,
validation and metadata labels are clean.
"""

import gzip
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import noisy_labels
from icda.data.generators import generator_for
from icda.data.registry import TASKS, DatasetNotFoundError, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import cut_splits, take_per_class
from icda.data.task import Split, Task
from icda.errors import InputError

TEST, VALIDATION, METADATA = 50, 10, 10  # images of each digit
LONG_TAIL_RATIO = 50
NOISE_RATE = 0.4
COLOUR_AGREEMENT = 0.95
COLOURED_NOISE = 0.2
MEAN, STD, SIDE = 0.3054, 0.3761, 8  # of all pixels

HOME = "the MNIST database of handwritten digits by LeCun, Cortes and Burges (torchvision and Hugging Face mirror it)"
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_MEAN, MNIST_STD, MNIST_SIDE = 0.1307, 0.3081, 28
MNIST_VALIDATION = 500
SMALL_TRAIN, SMALL_VALIDATION = 500, 50
NOISES = {"": ("uniform", 0), "_flip_40": ("flip2", 40), "_uniform_40": ("uniform", 40)}
LABEL_FLIP = 0.25
CMNIST_SPLITS = {"train": (0, 30000, 0.2), "validation": (30000, 40000, 0.5), "test": (40000, 60000, 0.9)}

CLASSES = ("digit<5", "digit>=5")
GROUP_NAMES = tuple(f"{name}, {colour}" for name in CLASSES for colour in ("red", "green"))


def _grey_task(name: str, side: int, splits: dict[str, Any], story: str) -> Task:
    shape = (1, side, side)
    return Task(name, 10, **splits, input_shape=shape, default_model="small_cnn", description=story)


def _coloured_task(name: str, side: int, splits: dict[str, Any], story: str) -> Task:
    return Task(
        name=name,
        num_classes=2,
        **splits,
        group_names=GROUP_NAMES,
        group_attributes=(0, 1, 0, 1),  # the colour of each group
        class_names=CLASSES,
        input_shape=(3, side, side),
        default_model="small_cnn",
        description=story,
    )


def _mislabelled(task: Task, given: Tensor) -> Task:
    return replace(task, train=replace(task.train, targets=given, clean_targets=task.train.targets))


@cache
def _images_and_digits() -> tuple[Tensor, Tensor]:
    """Read once in a process: every task here starts from them, and none writes to them."""
    from sklearn.datasets import load_digits  # takes a second to import, which only these tasks should cost

    data = load_digits()
    return torch.from_numpy(data.images).mul(255 / 16).round().to(torch.uint8), torch.from_numpy(data.target).long()


def _cut(seed: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The images as bytes (N, 8, 8), their digits, and which of them each split takes."""
    images, digits = _images_and_digits()
    parts = take_per_class(digits, [TEST, VALIDATION, METADATA], generator_for(seed, "digits"))
    return images, digits, dict(zip(("test", "validation", "metadata", "train"), parts, strict=True))


def _small_task(name: str, seed: int, story: str, ratio: int | None = None) -> Task:
    images, labels, rows = _cut(seed)
    if ratio is not None:
        chosen = long_tail(labels[rows["train"]], ratio, generator_for(seed, name)).train
        rows["train"] = rows["train"][chosen]
    source = ImageArray(images.unsqueeze(3), (MEAN,), (STD,))
    return _grey_task(name, SIDE, cut_splits(source, labels, **rows), story)


@TASKS.register("digits")
def digits(root: Path | None, seed: int) -> Task:
    """The ten digits as they are."""
    return _small_task("digits", seed, "8 x 8 digits, about 110 per class, unbiased.")


@TASKS.register("digits_lt", "digits_long_tail")
def digits_lt(root: Path | None, seed: int) -> Task:
    """The ten digits with class sizes from 104 down to 2."""
    story = f"8 x 8 digits, long-tailed {LONG_TAIL_RATIO}:1; test is balanced."
    return _small_task("digits_lt", seed, story, LONG_TAIL_RATIO)


@TASKS.register("digits_uniform_noise")
def digits_uniform_noise(root: Path | None, seed: int) -> Task:
    """The ten digits; 40 % of the training labels are replaced by any digit, so that 36 % are wrong."""
    return _noisy_task("digits_uniform_noise", "uniform", seed)


@TASKS.register("digits_flip_noise")
def digits_flip_noise(root: Path | None, seed: int) -> Task:
    """The ten digits; 40 % of each digit's training labels turn into one of two others."""
    return _noisy_task("digits_flip_noise", "flip2", seed)


def _noisy_task(name: str, kind: str, seed: int) -> Task:
    story = f"8 x 8 digits, {kind} label noise {NOISE_RATE:.0%} in train; validation, test and metadata are clean."
    task = _small_task(name, seed, story)
    return _mislabelled(task, noisy_labels(task.train.targets, kind, 10, NOISE_RATE, generator_for(seed, name)))


@TASKS.register("digits_coloured", "digits_colored")
def digits_coloured(root: Path | None, seed: int) -> Task:
    """Is the digit 5 or more? In training its colour tells in 95 % of cases; at test time it tells nothing.

    Groups are class x colour, in equal parts in validation, test and metadata. No label is wrong.
    """
    return coloured_digits("digits_coloured", seed)


def coloured_digits(name: str, seed: int, agreement: float = COLOUR_AGREEMENT) -> Task:
    """The coloured digits, whose colour tells the class of a share `agreement` of the training samples."""
    images, labels, rows = _cut(seed)
    generator = generator_for(seed, "digits_coloured")
    targets = (labels >= 5).long()
    colours = targets.clone()  # red, 0, goes with digits below 5
    for part in ("train", "validation", "test", "metadata"):
        share = 1 - agreement if part == "train" else 0.5
        colours[rows[part]] = flip_share(targets[rows[part]], share, generator)
    # One channel is empty in half of the images: half the mean, and the standard deviation that goes with it.
    spread = ((STD**2 + MEAN**2) / 2 - (MEAN / 2) ** 2) ** 0.5
    source = ImageArray(paint(images, colours), (MEAN / 2, MEAN / 2, 0.0), (spread,) * 3)
    story = (
        f"8 x 8 digits in colour; colour agrees with the class on {agreement:.0%} of train, "
        "on half of validation, test and metadata."
    )
    return _coloured_task(name, SIDE, cut_splits(source, targets, 2 * targets + colours, **rows), story)


@TASKS.register("digits_coloured_noise", "digits_colored_noise")
def digits_coloured_noise(root: Path | None, seed: int) -> Task:
    """The coloured digits; a fifth of the training labels of each class are wrong, and groups are of the true ones."""
    task = coloured_digits("digits_coloured_noise", seed)
    given = flip_share(task.train.targets, COLOURED_NOISE, generator_for(seed, "digits_coloured_noise"))
    story = f"{task.description[:-1]}; {COLOURED_NOISE:.0%} of train is mislabelled."
    return replace(_mislabelled(task, given), description=story)


@TASKS.register("mnist")
def mnist(root: Path | None, seed: int) -> Task:
    """The ten digits of MNIST; validation (500 a digit) and metadata (10) are taken from the training images."""
    story = "MNIST, 28 x 28 grey; 5,000 training images are kept for validation, 100 as metadata."
    _, labels, _, _ = read_mnist(root)
    parts = take_per_class(labels, [MNIST_VALIDATION, METADATA], generator_for(seed, "mnist"))
    return _mnist_task("mnist", root, dict(zip(("validation", "metadata", "train"), parts, strict=True)), story)


def mnist_5k(root: Path | None, seed: int, *, suffix: str) -> Task:
    """500 images of each digit; with noise, 40 % of the labels turn into one of two others or are drawn again."""
    kind, percent = NOISES[suffix]
    _, labels, _, _ = read_mnist(root)
    *parts, _ = take_per_class(labels, [SMALL_TRAIN, SMALL_VALIDATION, METADATA], generator_for(seed, "mnist_5k"))
    noise = f"{kind} label noise {percent} %" if percent else "labels right"
    story = f"MNIST, 5,000 training images, {noise}; validation, test and metadata (ten of a digit) are right."
    name = f"mnist_5k{suffix}"
    task = _mnist_task(name, root, dict(zip(("train", "validation", "metadata"), parts, strict=True)), story)
    if not percent:
        return task
    return _mislabelled(task, noisy_labels(task.train.targets, kind, 10, percent / 100, generator_for(seed, name)))


for _suffix in NOISES:
    TASKS.register(f"mnist_5k{_suffix}")(partial(mnist_5k, suffix=_suffix))


def _mnist_task(name: str, root: Path | None, rows: dict[str, Tensor], story: str) -> Task:
    images, labels, test_images, test_labels = read_mnist(root)
    source, test = (ImageArray(part.unsqueeze(3), (MNIST_MEAN,), (MNIST_STD,)) for part in (images, test_images))
    splits = cut_splits(source, labels, **rows) | {"test": Split(test, torch.arange(len(test_labels)), test_labels)}
    return _grey_task(name, MNIST_SIDE, splits, story)


@TASKS.register("cmnist", "coloured_mnist", "colored_mnist")
def cmnist(root: Path | None, seed: int) -> Task:
    """Coloured MNIST by the protocol of LISA, whose noise keeps any predictor's worst group at or below 75 %.

    The label, digit >= 5, is wrong in a quarter of all samples; the colour follows that label in 80 % of train, 50 % of
    validation and 10 % of test. Only the 60,000 training images are used, in their order; chance comes from `seed`.
    """
    images, labels, _, _ = read_mnist(root)
    generator = generator_for(seed, "cmnist")
    clean = (labels >= 5).long()
    targets = flip_some(clean, LABEL_FLIP, generator)
    colours = targets.clone()
    for start, stop, flip in CMNIST_SPLITS.values():
        colours[start:stop] = flip_some(targets[start:stop], flip, generator)
    source = ImageArray(paint(images, colours), (MNIST_MEAN, MNIST_MEAN, 0.0), (MNIST_STD,) * 3)
    everything = Split(source, torch.arange(len(targets)), targets, 2 * targets + colours, clean)
    splits = {name: everything.subset(torch.arange(start, stop)) for name, (start, stop, _) in CMNIST_SPLITS.items()}
    story = (
        "Coloured MNIST (LISA): 25 % label noise in all splits; colour agrees with the label on 80 % of "
        "train, 50 % of validation, 10 % of test. Worst-group accuracy beyond 75 % means leakage or luck."
    )
    return _coloured_task("cmnist", MNIST_SIDE, splits, story)


def read_mnist(root: Path | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (60000, 28, 28) as bytes, their digits, and the same for the 10,000 test images."""
    layouts = [(folder, FILES[0] + end) for folder in ("mnist", "MNIST/raw") for end in (".gz", "")]
    return _read_folder(find_folder(root, "MNIST", layouts, f"{', '.join(FILES)}, plain or as .gz", HOME).resolve())


@lru_cache(maxsize=1)
def _read_folder(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    paths = [folder / f"{name}.gz" if (folder / f"{name}.gz").is_file() else folder / name for name in FILES]
    for path in paths:
        if not path.is_file():
            raise DatasetNotFoundError(f"MNIST in {folder} is not complete: {path.name}, plain or as .gz, is missing.")
    images, labels, test_images, test_labels = (torch.from_numpy(read_idx(path)) for path in paths)
    return images, labels.long(), test_images, test_labels.long()


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


def flip_some(values: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Binary values, each changed to the other with `probability`."""
    return values ^ (torch.rand(len(values), generator=generator) < probability).long()


def flip_share(values: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Binary values with exactly `share` of each changed, rounded: in a small set chance would leave groups uneven."""
    flipped = values.clone()
    for value in (0, 1):
        positions = (values == value).nonzero().flatten()
        chosen = torch.randperm(len(positions), generator=generator)[: round(share * len(positions))]
        flipped[positions[chosen]] = 1 - value
    return flipped


def paint(images: Tensor, colours: Tensor) -> Tensor:
    """Grey images (N, H, W) as RGB (N, H, W, 3): the intensity goes into red (colour 0) or green (1) and nowhere else."""
    painted = torch.zeros(*images.shape, 3, dtype=images.dtype)
    for colour in (0, 1):
        painted[..., colour] = images * (colours == colour).view(-1, 1, 1)
    return painted
