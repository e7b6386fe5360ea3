import pytest
import torch

from icda.data.embedding import Samples
from icda.data.own.table import natural_order
from icda.data.own.tasks import own_task
from icda.data.sources import FeatureArray
from icda.data.task import Task


def _task(labels: list[str], splits: list[str], groups: list[str] | None = None, seed: int = 0) -> Task:
    rows = range(len(labels))
    samples = Samples("features", rows, rows, labels, groups, splits)
    return own_task("mine", FeatureArray(torch.zeros(len(labels), 2)), samples, seed, input_shape=(2,), model="linear")


def _sizes(task: Task) -> dict[str, int]:
    return {name: len(split) for name, split in task.splits().items()}


def test_splits_that_were_given_stay_as_they_are() -> None:
    task = _task(["a", "b"] * 4, ["train", "train", "validation", "validation", "test", "test", "metadata", "metadata"])
    assert [split.rows.tolist() for split in task.splits().values()] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert "All splits as given" in task.description


def test_without_splits_70_10_20_percent_are_cut_from_every_class() -> None:
    task = _task(["a"] * 100 + ["b"] * 50, ["train"] * 150)
    assert _sizes(task) == {"train": 105, "validation": 15, "test": 30}
    assert task.class_counts.tolist() == [70, 35]
    assert torch.bincount(task.test.targets).tolist() == [20, 10]
    assert "20% as test (30) and 10% as validation (15)" in task.description
    rows = torch.cat([split.rows for split in task.splits().values()])
    assert rows.sort().values.tolist() == list(range(150))


def test_a_missing_split_is_cut_from_train_and_the_others_stay() -> None:
    task = _task(["a", "b"] * 50, ["train"] * 80 + ["test"] * 20)
    assert _sizes(task) == {"train": 72, "validation": 8, "test": 20}
    assert task.test.rows.tolist() == list(range(80, 100))
    again, other = (_task(["a", "b"] * 50, ["train"] * 80 + ["test"] * 20, seed=seed) for seed in (0, 1))
    assert again.data_hash == task.data_hash != other.data_hash


def test_rare_groups_get_their_share_of_the_test_split() -> None:
    groups = ["common"] * 90 + ["rare"] * 10
    task = _task(["a", "b"] * 50, ["train"] * 100, groups)
    assert task.group_names == ("common", "rare")
    assert torch.bincount(task.test.groups).tolist() == [18, 2]


def test_numbers_are_ordered_as_numbers() -> None:
    assert natural_order(["2", "10", "1"]) == ("1", "2", "10")
    assert natural_order(["b", "10", "a"]) == ("10", "a", "b")


@pytest.mark.parametrize(
    ("labels", "splits", "message"),
    [
        (["a", "b", "c"], ["train", "train", "test"], r"class 'c' is in test \(1 samples\) but not in train"),
        (["a", "a"], ["train", "test"], "one class only, 'a'"),
        (["a", "b"], ["test", "test"], "no training samples"),
        (["a", "b"], ["train", "train"], "too few samples"),
    ],
)
def test_data_that_cannot_make_a_task_are_refused(labels: list[str], splits: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _task(labels, splits)
