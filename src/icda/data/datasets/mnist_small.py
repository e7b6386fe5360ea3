"""Five thousand images of MNIST with wrong labels: a task that a small network learns in seconds when labels are right.

On smaller tasks of harder images nothing can be seen of wrong labels: a network that gets a quarter of the test right has
no right answer to hold against a wrong label.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from icda.data.bias.noise import corrupt_labels, noise_transition
from icda.data.datasets.mnist import MEAN, STD, read_mnist
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task

TRAIN, VALIDATION, METADATA = 500, 50, 10  # images of each digit
NOISES = {"": ("uniform", 0), "_flip_40": ("flip2", 40), "_uniform_40": ("uniform", 40)}


def mnist_5k(root: Path | None, seed: int, *, suffix: str) -> Task:
    """500 images of each digit; with noise, 40 % of the labels turn into one of two others or are drawn again."""
    kind, percent = NOISES[suffix]
    images, digits, test_images, test_digits = read_mnist(root)
    sizes = [TRAIN, VALIDATION, METADATA]
    train, validation, metadata, _ = take_per_class(digits, sizes, generator_for(seed, "mnist_5k"))
    source = ImageArray(images.unsqueeze(3), (MEAN,), (STD,))
    clean = digits[train]
    given = clean
    if percent:
        generator = generator_for(seed, f"mnist_5k{suffix}")
        given = corrupt_labels(clean, noise_transition(kind, 10, percent / 100, generator), generator)
    return Task(
        name=f"mnist_5k{suffix}",
        num_classes=10,
        train=Split(source, train, given, clean_targets=clean if percent else None),
        validation=Split(source, validation, digits[validation]),
        test=Split(ImageArray(test_images.unsqueeze(3), (MEAN,), (STD,)), torch.arange(len(test_digits)), test_digits),
        metadata=Split(source, metadata, digits[metadata]),
        input_shape=(1, 28, 28),
        default_model="small_cnn",
        description=f"MNIST, 5,000 training images, {f'{kind} label noise {percent} %' if percent else 'labels right'}; "
        "validation, test and metadata (ten of a digit) are right.",
    )


for _suffix in NOISES:
    TASKS.register(f"mnist_5k{_suffix}")(partial(mnist_5k, suffix=_suffix))
