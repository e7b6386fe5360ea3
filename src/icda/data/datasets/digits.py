"""Tasks that need no download: scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, plain and biased.

All of them share one cut, made by the data seed: of each digit 50 images are for test, 10 for validation, 10 are
metadata, and the rest, 104 to 113, is what a bias is built from. Test, validation and metadata labels are clean.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from icda.data.bias.colour import CLASSES, GROUP_COLOURS, GROUP_NAMES, flip_share, group_of, paint
from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import noisy_labels
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.sources import ImageArray
from icda.data.splits import cut_splits, take_per_class
from icda.data.task import Task

TEST, VALIDATION, METADATA = 50, 10, 10
LONG_TAIL_RATIO = 50
NOISE_RATE = 0.4
COLOUR_AGREEMENT = 0.95
COLOURED_NOISE = 0.2
MEAN, STD = 0.3054, 0.3761  # of all pixels
SIZE = 8


class _Cut(NamedTuple):
    """The images as bytes (N, 8, 8), their digits, and which of them each split takes."""

    images: Tensor
    digits: Tensor
    rows: dict[str, Tensor]


@cache
def _images_and_digits() -> tuple[Tensor, Tensor]:
    """Read once in a process: every task here starts from them, and none writes to them."""
    from sklearn.datasets import load_digits  # takes a second to import, which only these tasks should cost

    data = load_digits()
    return torch.from_numpy(data.images).mul(255 / 16).round().to(torch.uint8), torch.from_numpy(data.target).long()


def _cut(seed: int) -> _Cut:
    images, digits = _images_and_digits()
    parts = take_per_class(digits, [TEST, VALIDATION, METADATA], generator_for(seed, "digits"))
    return _Cut(images, digits, dict(zip(("test", "validation", "metadata", "train"), parts, strict=True)))


def _grey_task(name: str, cut: _Cut, description: str) -> Task:
    return Task(
        name=name,
        num_classes=10,
        **cut_splits(ImageArray(cut.images.unsqueeze(3), (MEAN,), (STD,)), cut.digits, **cut.rows),
        input_shape=(1, SIZE, SIZE),
        default_model="small_cnn",
        description=description,
    )


@TASKS.register("digits")
def digits(root: Path | None, seed: int) -> Task:
    """The ten digits as they are."""
    return _grey_task("digits", _cut(seed), "8 x 8 digits, about 110 per class, unbiased.")


@TASKS.register("digits_lt", "digits_long_tail")
def digits_lt(root: Path | None, seed: int) -> Task:
    """The ten digits with class sizes from 104 down to 2."""
    cut = _cut(seed)
    train = cut.rows["train"]
    cut.rows["train"] = train[long_tail(cut.digits[train], LONG_TAIL_RATIO, generator_for(seed, "digits_lt")).train]
    return _grey_task("digits_lt", cut, f"8 x 8 digits, long-tailed {LONG_TAIL_RATIO}:1; test is balanced.")


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
    task = _grey_task(name, _cut(seed), story)
    return _mislabelled(task, noisy_labels(task.train.targets, kind, 10, NOISE_RATE, generator_for(seed, name)))


def _mislabelled(task: Task, given: Tensor) -> Task:
    return replace(task, train=replace(task.train, targets=given, clean_targets=task.train.targets))


@TASKS.register("digits_coloured", "digits_colored")
def digits_coloured(root: Path | None, seed: int) -> Task:
    """Is the digit 5 or more? In training its colour tells in 95 % of cases; at test time it tells nothing.

    Groups are class x colour; validation, test and metadata hold every group in equal parts. No label is wrong, so the
    shape alone suffices.
    """
    return _coloured_task(seed, "digits_coloured")


@TASKS.register("digits_coloured_noise", "digits_colored_noise")
def digits_coloured_noise(root: Path | None, seed: int) -> Task:
    """The coloured digits, and a fifth of the training labels of each class are wrong: a shortcut and noise at once.

    Groups are those of the true labels.
    """
    task = _coloured_task(seed, "digits_coloured_noise")
    given = flip_share(task.train.targets, COLOURED_NOISE, generator_for(seed, "digits_coloured_noise"))
    story = f"{task.description[:-1]}; {COLOURED_NOISE:.0%} of train is mislabelled."
    return replace(_mislabelled(task, given), description=story)


def _coloured_task(seed: int, name: str) -> Task:
    cut = _cut(seed)
    generator = generator_for(seed, "digits_coloured")
    targets = (cut.digits >= 5).long()
    colours = targets.clone()  # red, 0, goes with digits below 5
    for part in ("train", "validation", "test", "metadata"):
        share = 1 - COLOUR_AGREEMENT if part == "train" else 0.5
        colours[cut.rows[part]] = flip_share(targets[cut.rows[part]], share, generator)
    # One channel is empty in half of the images: half the mean, and the standard deviation that goes with it.
    spread = ((STD**2 + MEAN**2) / 2 - (MEAN / 2) ** 2) ** 0.5
    source = ImageArray(paint(cut.images, colours), (MEAN / 2, MEAN / 2, 0.0), (spread,) * 3)
    return Task(
        name=name,
        num_classes=2,
        **cut_splits(source, targets, group_of(targets, colours), **cut.rows),
        group_names=GROUP_NAMES,
        group_attributes=GROUP_COLOURS,
        class_names=CLASSES,
        input_shape=(3, SIZE, SIZE),
        default_model="small_cnn",
        description=f"8 x 8 digits in colour; colour agrees with the class on {COLOUR_AGREEMENT:.0%} of train, "
        "on half of validation, test and metadata.",
    )
