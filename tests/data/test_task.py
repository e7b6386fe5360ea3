import pytest
import torch

from icda.data.sources import FeatureArray
from icda.data.task import Split, Task


def _split(targets, offset=0):
    return Split(FeatureArray(torch.zeros(20, 2)), torch.arange(len(targets)) + offset, torch.tensor(targets))


def _task(train, test):
    return Task(name="toy", num_classes=2, train=train, validation=None, test=test, class_names=("cat", "dog"))


def test_counts_come_from_the_training_labels_which_every_class_must_have():
    assert _task(_split([0, 1, 1]), _split([0])).class_counts.tolist() == [1, 2]
    with pytest.raises(ValueError, match="no training sample for class dog"):
        _task(_split([0, 0]), _split([1]))
    with pytest.raises(ValueError, match=r"test has label 2, outside 0\.\.1"):
        _task(_split([0, 1]), _split([2]))


def test_the_hash_changes_with_rows_and_labels_and_with_nothing_else():
    tasks = [
        _task(_split([0, 1]), _split([0])),
        _task(_split([0, 1]), _split([0])),
        _task(_split([1, 0]), _split([0])),
        _task(_split([0, 1], offset=3), _split([0])),
    ]
    hashes = [task.data_hash for task in tasks]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_a_subset_keeps_rows_labels_groups_and_clean_labels_together():
    whole = Split(
        FeatureArray(torch.zeros(9, 1)), torch.arange(9), torch.arange(9) % 2, torch.arange(9) % 3, torch.arange(9) % 4
    )
    part = whole.subset(torch.tensor([7, 2]))
    values = (part.rows, part.targets, part.groups, part.clean_targets)
    assert [value.tolist() for value in values] == [[7, 2], [1, 0], [1, 2], [3, 2]]
