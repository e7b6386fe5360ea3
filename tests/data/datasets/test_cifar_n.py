"""Labels that people gave to CIFAR: which are wrong is known, and images are those of the sets they are made of."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.registry import DatasetNotFoundError

WRONG = {"aggre": 0.0901, "random1": 0.1723, "worse": 0.4021}  # of all 50,000 images


@pytest.fixture
def labels(real_data: Path) -> Path:
    folder = real_data / "cifar_n"
    if not (folder / "cifar10n.npz").is_file():
        pytest.skip(f"REAL DATA NOT TESTED: no cifar10n.npz in {folder}.")
    return real_data


@pytest.mark.parametrize("kind", WRONG)
def test_all_images_of_cifar10_have_human_labels_and_their_own_as_the_clean_ones(labels: Path, kind: str) -> None:
    task, plain = create_task(f"cifar10n_{kind}", labels), create_task("cifar10", labels)
    assert (len(task.train), task.name, task.input_shape) == (50_000, f"cifar10n_{kind}", (3, 32, 32))
    assert torch.equal(task.train.clean_targets, plain.train.targets)
    wrong = (task.train.targets != plain.train.targets).double().mean().item()
    assert wrong == pytest.approx(WRONG[kind], abs=1e-3)
    assert torch.equal(task.test.targets, plain.test.targets)
    assert f"({kind}), {100 * wrong:.1f} % of them wrong" in task.description


@pytest.mark.parametrize(
    ("name", "per_class", "classes", "wrong"),
    [(f"cifar10n_{kind}_small", 500, 10, share) for kind, share in WRONG.items()]
    + [("cifar100n_noisy_small", 100, 100, 0.402)],
)
def test_small_tasks_have_clean_metadata_and_balanced_images(
    labels: Path, name: str, per_class: int, classes: int, wrong: float
) -> None:
    task = create_task(name, labels)
    assert torch.bincount(task.train.clean_targets).tolist() == [per_class] * classes
    assert (task.train.targets != task.train.clean_targets).double().mean().item() == pytest.approx(wrong, abs=0.02)
    whole = create_task(name.partition("n_")[0], labels)
    assert torch.equal(task.train.clean_targets, whole.train.targets[task.train.rows])
    assert torch.equal(task.metadata.targets, whole.train.targets[task.metadata.rows])
    assert torch.bincount(task.metadata.targets).tolist() == [10] * classes
    assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())


def test_the_small_tasks_share_their_images(labels: Path) -> None:
    tasks = [create_task(f"cifar10n_{kind}_small", labels) for kind in WRONG]
    assert all(torch.equal(task.train.rows, tasks[0].train.rows) for task in tasks)
    assert len({task.data_hash for task in tasks}) == 3


def test_labels_that_are_missing_or_of_another_order_are_refused(labels: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar10").symlink_to(labels / "cifar10")
    with pytest.raises(DatasetNotFoundError, match=r"CIFAR-10N is not there.*cifar10n\.npz.*research use only"):
        create_task("cifar10n_worse_small", tmp_path)
    with np.load(labels / "cifar_n" / "cifar10n.npz") as stored:
        (tmp_path / "cifar_n").mkdir()
        np.savez(tmp_path / "cifar_n" / "cifar10n.npz", **{name: stored[name][::-1] for name in stored.files})
    with pytest.raises(ValueError, match="the images stand in another order"):
        create_task("cifar10n_worse_small", tmp_path)
