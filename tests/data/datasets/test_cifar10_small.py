"""Small CIFAR-10 tasks: the biases of their namesakes on images of half the size."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets.cifar import halve

LONG_TAILED = {
    "cifar10_lt_100_small": [500, 299, 179, 107, 64, 38, 23, 13, 8, 5],
    "cifar10_lt_10_small": [500, 387, 299, 232, 179, 139, 107, 83, 64, 50],
}
WRONG = {
    "cifar10_flip_20_small": 0.2,
    "cifar10_flip_40_small": 0.4,
    "cifar10_uniform_40_small": 0.36,
    "cifar10_uniform_60_small": 0.54,
}


def test_halving_averages_four_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), dtype=np.uint8)
    small = halve(images)
    assert small.shape == (3, 2, 3, 3)
    for n, i, j, c in np.ndindex(small.shape):
        four = images[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c].astype(float)
        assert small[n, i, j, c] == int(four.mean() + 0.5)


@pytest.mark.parametrize("name", ["cifar10_small", *LONG_TAILED, *WRONG])
def test_metadata_are_clean_balanced_and_not_trained_on(real_data: Path, name: str) -> None:
    task, whole = create_task(name, real_data), create_task("cifar10", real_data)
    assert (task.name, task.validation, task.input_shape) == (name, None, (3, 16, 16))
    assert torch.bincount(task.metadata.targets).tolist() == [10] * 10
    assert torch.equal(task.metadata.targets, whole.train.targets[task.metadata.rows])
    assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    if name in LONG_TAILED:
        assert task.class_counts.tolist() == LONG_TAILED[name]
    if name in WRONG:
        assert task.train.clean_targets is not None
        wrong = (task.train.targets != task.train.clean_targets).double().mean().item()
        assert wrong == pytest.approx(WRONG[name], abs=0.04)


def test_the_variant_with_validation_changes_nothing_else(real_data: Path) -> None:
    plain, tuned = (create_task(f"cifar10_lt_100_small{end}", real_data) for end in ("", "_validation"))
    assert torch.equal(plain.train.rows, tuned.train.rows)
    assert torch.equal(plain.metadata.rows, tuned.metadata.rows)
    assert torch.bincount(tuned.validation.targets).tolist() == [100] * 10
    used = set(tuned.train.rows.tolist()) | set(tuned.metadata.rows.tolist())
    assert not used & set(tuned.validation.rows.tolist())


def test_training_images_are_mirrored_and_never_shifted(real_data: Path) -> None:
    task = create_task("cifar10_small", real_data)
    positions = torch.arange(32)
    plain = task.train.batch(positions).inputs
    random = task.train.batch(positions, torch.Generator().manual_seed(0)).inputs
    mirrored = plain.flip(3)
    same = [torch.equal(a, b) for a, b in zip(random, plain, strict=True)]
    other = [torch.equal(a, b) for a, b in zip(random, mirrored, strict=True)]
    assert all(a or b for a, b in zip(same, other, strict=True))
    assert 0 < sum(same) < 32
