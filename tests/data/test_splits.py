import pytest
import torch

from icda.data.generators import generator_for
from icda.data.sources import FeatureArray
from icda.data.splits import cut_splits, shuffled_by_class, stratified_split, take_per_class


def _labels() -> torch.Tensor:
    return torch.tensor([2] * 30 + [0] * 20 + [1] * 10)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_positions_are_grouped_by_label_in_random_order() -> None:
    parts = shuffled_by_class(_labels(), _generator())
    assert [sorted(part.tolist()) for part in parts] == [list(range(30, 50)), list(range(50, 60)), list(range(30))]
    assert parts[2].tolist() != sorted(parts[2].tolist())


def test_an_amount_is_taken_of_every_class_and_the_parts_are_disjoint() -> None:
    labels = _labels()
    first, second, rest = take_per_class(labels, [3, 5], _generator())
    assert torch.bincount(labels[first]).tolist() == [3, 3, 3]
    assert torch.bincount(labels[second]).tolist() == [5, 5, 5]
    assert sorted([*first.tolist(), *second.tolist(), *rest.tolist()]) == list(range(60))
    with pytest.raises(ValueError, match="class 1 has 10 samples, 11 are needed"):
        take_per_class(labels, [11], _generator())


def test_shares_hold_in_every_class() -> None:
    labels = _labels()
    test, validation, train = stratified_split(labels, [0.2, 0.1], _generator())
    assert torch.bincount(labels[test]).tolist() == [4, 2, 6]
    assert torch.bincount(labels[validation]).tolist() == [2, 1, 3]
    assert sorted([*test.tolist(), *validation.tolist(), *train.tolist()]) == list(range(60))
    again, other = (stratified_split(labels, [0.2, 0.1], _generator(seed))[0].tolist() for seed in (0, 1))
    assert again == test.tolist() != other


def test_each_split_has_its_own_rows_and_what_belongs_to_them() -> None:
    source = FeatureArray(torch.arange(4.0).view(4, 1))
    targets, groups, memberships = torch.tensor([0, 1, 0, 1]), torch.tensor([3, 2, 1, 0]), torch.eye(4).bool()
    rows = {"train": torch.tensor([1, 3]), "validation": torch.tensor([2]), "test": torch.tensor([0])}
    splits = cut_splits(source, targets, groups, memberships, **rows)
    assert {name: split and split.rows.tolist() for name, split in splits.items()} == {
        **{name: own.tolist() for name, own in rows.items()},
        "metadata": None,
    }
    train = splits["train"]
    assert (train.targets.tolist(), train.groups.tolist()) == ([1, 1], [2, 0])
    assert torch.equal(train.memberships, memberships[[1, 3]])


def test_a_stream_depends_on_its_key_and_on_nothing_else_and_neighbouring_keys_differ() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    keys = [(0, 1), (1, 0), (0, 1, 0), (0, "1"), (1,), (10,), (10,)]
    streams = [tuple(torch.rand(4, generator=generator_for(*key)).tolist()) for key in keys]
    assert len(set(streams)) == len(set(keys))
    assert torch.equal(torch.rand(1), expected), "global randomness is left alone"
