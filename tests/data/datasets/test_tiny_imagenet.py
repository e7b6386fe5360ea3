from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets.tiny_imagenet import FILE


def test_images_are_decoded_into_the_splits_the_file_says(tmp_path: Path, encode_images: Any) -> None:
    """A file of the same layout: 100 classes, one to three training images each, 12 held out; lossless, so comparable."""
    labels = np.concatenate([np.repeat(np.arange(100), 1 + np.arange(100) % 3), np.repeat(np.arange(100), 12)])
    split = np.where(np.arange(len(labels)) < len(labels) - 1200, 0, 2)
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    known = {"y": labels.astype(np.uint8), "split": split.astype(np.uint8)}
    names = np.array([f"n{number:08d}" for number in range(100)])
    np.savez(tmp_path / FILE, **encode_images(images), **known, wnids=names)
    task = create_task("tiny_imagenet_lt", tmp_path)
    assert (task.num_classes, task.class_names[7]) == (100, "n00000007")
    assert task.class_counts.tolist() == [1 + c % 3 for c in range(100)]
    assert torch.bincount(task.metadata.targets).tolist() == [10] * 100
    assert torch.bincount(task.test.targets).tolist() == [2] * 100
    taken = torch.cat([task.train.rows, task.metadata.rows, task.test.rows])
    assert sorted(taken.tolist()) == list(range(len(images)))
    first = task.train.batch(torch.tensor([5])).inputs[0]
    mean, std = torch.tensor([0.465, 0.448, 0.404]), torch.tensor([0.255, 0.241, 0.255])
    expected = (torch.from_numpy(images[5]).double() / 255 - mean) / std
    assert torch.allclose(first.double(), expected.permute(2, 0, 1), atol=1e-5)


def test_the_real_file_is_long_tailed_100_to_1(real_data: Path) -> None:
    if not (real_data / FILE).is_file():
        pytest.skip(f"REAL DATA NOT TESTED: {FILE} is not there.")
    task = create_task("tiny_imagenet_lt", real_data)
    counts = task.class_counts.sort().values
    assert (len(task.train), int(counts[0]), int(counts[-1])) == (10_847, 5, 500)
    assert torch.bincount(task.test.targets).tolist() == [40] * 100
    some = task.train.batch(torch.arange(0, 10_847, 20)).inputs
    assert some.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.05)
    assert some.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.05)
