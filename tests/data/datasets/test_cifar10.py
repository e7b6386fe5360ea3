from pathlib import Path

import pytest
import torch

from icda.data import BatchLoader, create_task
from icda.data.bias.long_tail import long_tail_counts

# Names, the largest class and the ratio; test_long_tail.py holds the class sizes to the literature.
LONG_TAILED = {
    "cifar10_lt_100": (5000, 100),
    "cifar10_lt_10": (5000, 10),
    "cifar10_lt_100_meta": (4990, 100),
    "cifar10_lt_10_meta": (4990, 10),
}
WRONG = {"cifar10_uniform_40": 0.36, "cifar10_uniform_60": 0.54, "cifar10_flip_20": 0.2, "cifar10_flip_40": 0.4}


def test_cifar10_is_whole_and_in_its_original_order(real_data: Path) -> None:
    task = create_task("cifar10", root=real_data)
    assert task.name == "cifar10"
    assert task.class_counts.tolist() == [5000] * 10
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    assert task.train.targets[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert task.test.targets[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert (task.validation, task.metadata, task.default_model) == (None, None, "resnet32")


def test_pixels_are_normalised_by_the_figures_of_the_literature(real_data: Path) -> None:
    task = create_task("cifar10", root=real_data)
    first = task.train.batch(torch.tensor([0])).inputs[0, :, 0, 0]
    expected = [(59 - 125.3) / 63.0, (62 - 123.0) / 62.1, (63 - 113.9) / 66.7]  # the famous frog's corner
    assert first.tolist() == pytest.approx(expected, abs=1e-5)
    some = task.train.batch(torch.arange(0, 50_000, 10)).inputs
    assert some.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.02)
    assert some.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.02)


@pytest.mark.parametrize("name", LONG_TAILED)
def test_long_tailed_sets_have_the_class_sizes_of_the_literature(real_data: Path, name: str) -> None:
    task = create_task(name, root=real_data)
    assert task.name == name
    largest, ratio = LONG_TAILED[name]
    assert task.class_counts.tolist() == long_tail_counts(largest, 10, ratio)
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    if name.endswith("_meta"):
        assert torch.bincount(task.metadata.targets).tolist() == [10] * 10
        assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())
    else:
        assert task.metadata is None


@pytest.mark.parametrize("name", WRONG)
def test_noisy_sets_keep_a_thousand_clean_images_and_corrupt_the_rest(real_data: Path, name: str) -> None:
    task, clean = create_task(name, root=real_data), create_task("cifar10", root=real_data)
    assert task.name == name
    assert (len(task.train), torch.bincount(task.metadata.targets).tolist()) == (49_000, [100] * 10)
    assert len(torch.cat([task.train.rows, task.metadata.rows]).unique()) == 50_000
    assert torch.equal(task.metadata.targets, clean.train.targets[task.metadata.rows])
    assert torch.equal(task.train.clean_targets, clean.train.targets[task.train.rows])
    wrong = (task.train.targets != task.train.clean_targets).double().mean().item()
    assert wrong == pytest.approx(WRONG[name], abs=0.01)


def test_training_images_are_augmented_and_test_images_are_not(real_data: Path) -> None:
    task = create_task("cifar10", root=real_data)
    positions = torch.arange(16)
    for split, changes in ((task.train, True), (task.test, False)):
        plain = split.batch(positions).inputs
        random = split.batch(positions, torch.Generator().manual_seed(0)).inputs
        assert torch.equal(plain, random) is not changes


def test_the_loader_resumes_within_an_epoch_of_real_images(real_data: Path) -> None:
    split = create_task("cifar10_lt_100", real_data).train
    whole = list(BatchLoader(split, 1000, seed=0, shuffle=True, augment=True).epoch(2))
    resumed = next(BatchLoader(split, 1000, seed=0, shuffle=True, augment=True).epoch(2, start_batch=9))
    assert torch.equal(whole[9].inputs, resumed.inputs)
    assert torch.equal(whole[9].index, resumed.index)


@pytest.mark.parametrize("name", ["cifar10_lt_100", "cifar10_flip_40", "cifar10_small", "cmnist"])
def test_a_seed_decides_what_is_taken_and_images_are_decoded_once(real_data: Path, name: str) -> None:
    first, again, other = (create_task(name, real_data, seed) for seed in (0, 0, 1))
    assert first.data_hash == again.data_hash != other.data_hash
    assert name == "cmnist" or first.train.source is again.train.source
