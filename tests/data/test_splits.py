from collections import Counter
from dataclasses import replace

import pytest
import torch

from icda.data import Split, Task, create_task
from icda.data.generators import generator_for
from icda.data.sources import FeatureArray
from icda.data.splits import cell_sizes, cut_splits, stratified_split, take_per_class, take_subset

CELLS = {"train": [700, 40, 12, 211], "validation": [93, 93, 27, 27], "test": [300, 300, 1, 80]}


def birds(with_groups=True):
    """Groups 2 * class + place with the sizes above, and metadata; the memberships mark every third sample."""
    source = FeatureArray(torch.arange(3000.0).view(-1, 1))
    splits, start = {}, 0
    for name, counts in {**CELLS, "metadata": [2, 2, 2, 2]}.items():
        groups = torch.arange(4).repeat_interleave(torch.tensor(counts))[torch.randperm(sum(counts))]
        rows = torch.arange(start, start + sum(counts))
        start += sum(counts)
        marks = (rows % 3 == 0).view(-1, 1)
        splits[name] = Split(source, rows, groups // 2, groups if with_groups else None, memberships=marks)
    return Task(
        "birds",
        2,
        **splits,
        group_names=("a", "b", "c", "d") if with_groups else None,
        membership_names=("third",),
        input_kind="features",
    )


def group_sizes(split):
    return torch.bincount(split.groups, minlength=4).tolist()


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.97])
def test_every_cell_of_every_split_keeps_its_share_and_none_vanishes(share):
    part = take_subset(birds(), share, seed=3)
    for name, counts in CELLS.items():
        found = group_sizes(part.splits()[name])
        assert sum(found) == max(round(share * sum(counts)), 4)
        for kept, count in zip(found, counts, strict=True):
            # One sample more or less than the share, but for what the cells lifted to one take from the largest.
            assert 1 <= kept <= count
            assert abs(kept - share * count) < 1 or kept == 1 or count == max(counts)


def test_a_subset_keeps_what_belongs_to_a_sample_and_the_order():
    whole = birds()
    part = take_subset(whole, 0.1, seed=5)
    for name, split in part.splits().items():
        origin = whole.splits()[name]
        assert split.rows.tolist() == sorted(set(split.rows.tolist()))
        positions = torch.searchsorted(origin.rows, split.rows)
        for field in ("rows", "targets", "groups", "memberships"):
            assert torch.equal(getattr(split, field), getattr(origin, field)[positions])


def test_name_and_metadata_stay_and_the_hash_differs():
    whole = birds()
    part = take_subset(whole, 100)  # training samples, and the other splits follow
    assert [len(split) for split in (part.train, part.validation, part.test)] == [100, 25, 71]
    assert take_subset(whole, len(whole.train)) is whole
    assert part.name == whole.name
    assert part.metadata is whole.metadata
    assert part.group_names == whole.group_names
    assert part.data_hash != whole.data_hash
    assert part.class_counts.sum() == len(part.train)
    assert f"{len(part.train)} of 963 training samples" in part.description
    changed = whole.test.memberships.clone()
    changed[0, 0] = ~changed[0, 0]
    assert replace(whole, test=replace(whole.test, memberships=changed)).data_hash != whole.data_hash
    assert replace(whole).data_hash == whole.data_hash


def test_the_seed_alone_decides_which_samples():
    whole = birds()
    first, again, other = (take_subset(whole, 0.2, seed) for seed in (0, 0, 1))
    assert first.data_hash == again.data_hash
    assert first.data_hash != other.data_hash
    assert group_sizes(first.train) == group_sizes(other.train)


def test_without_groups_the_classes_are_the_cells():
    part = take_subset(birds(with_groups=False), 0.01)
    assert part.class_counts.tolist() == [8, 2]
    part = take_subset(birds(with_groups=False), 2)
    assert part.class_counts.tolist() == [1, 1]
    assert part.test.targets.bincount().tolist() == [1, 1]


@pytest.mark.parametrize("total", [4, 5, 9, 50, 481, 962, 963, 5000])
def test_sizes_are_within_their_cells_and_sum_up(total):
    sizes = cell_sizes(CELLS["train"], total)
    assert sum(sizes) == min(total, 963)
    assert all(1 <= size <= count for size, count in zip(sizes, CELLS["train"], strict=True))
    assert cell_sizes([1000, 1, 1, 1], 5) == [2, 1, 1, 1]  # many tiny cells take from the large one
    assert cell_sizes([1000, 1, 1, 1], 1) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        (0, "subset is 0, expected a share"),
        (-0.5, "subset is -0.5, expected a share"),
        (1, "subset is 1, .*1 could mean all or one"),
        (1.0, "1 could mean all or one"),
        (float("nan"), "subset is nan"),
        (float("inf"), "subset is inf"),
        (True, "subset is True"),
        (2.5, "subset is 2.5, .*whole number"),
        (964, "subset is 964, .*ask for 4 to 963"),
        (3, "subset is 3, .* in 4 cells"),
    ],
)
def test_a_subset_that_cannot_be_is_refused(subset, message):
    with pytest.raises(ValueError, match=message):
        take_subset(birds(), subset)


def test_create_task_takes_a_subset_by_the_data_seed():
    whole = create_task("digits_coloured")
    parts = [create_task("digits_coloured", subset=0.2, data_seed=seed) for seed in (0, 0, 1)]
    assert parts[0].data_hash == parts[1].data_hash != parts[2].data_hash
    assert len(parts[0].train) == round(0.2 * len(whole.train))
    assert set(Counter(parts[0].train.groups.tolist())) == set(Counter(whole.train.groups.tolist()))


def _labels():
    return torch.tensor([2] * 30 + [0] * 20 + [1] * 10)


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_an_amount_is_taken_of_every_class_and_the_parts_are_disjoint():
    labels = _labels()
    first, second, rest = take_per_class(labels, [3, 5], _generator())
    assert torch.bincount(labels[first]).tolist() == [3, 3, 3]
    assert torch.bincount(labels[second]).tolist() == [5, 5, 5]
    assert sorted([*first.tolist(), *second.tolist(), *rest.tolist()]) == list(range(60))
    with pytest.raises(ValueError, match="class 1 has 10 samples, 11 are needed"):
        take_per_class(labels, [11], _generator())


def test_shares_hold_in_every_class():
    labels = _labels()
    test, validation, train = stratified_split(labels, [0.2, 0.1], _generator())
    assert torch.bincount(labels[test]).tolist() == [4, 2, 6]
    assert torch.bincount(labels[validation]).tolist() == [2, 1, 3]
    assert sorted([*test.tolist(), *validation.tolist(), *train.tolist()]) == list(range(60))
    again, other = (stratified_split(labels, [0.2, 0.1], _generator(seed))[0].tolist() for seed in (0, 1))
    assert again == test.tolist() != other


def test_each_split_has_its_own_rows_and_what_belongs_to_them():
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


def test_a_stream_depends_on_its_key_and_on_nothing_else_and_neighbouring_keys_differ():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    keys = [(0, 1), (1, 0), (0, 1, 0), (0, "1"), (1,), (10,), (10,)]
    streams = [tuple(torch.rand(4, generator=generator_for(*key)).tolist()) for key in keys]
    assert len(set(streams)) == len(set(keys))
    assert torch.equal(torch.rand(1), expected), "global randomness is left alone"
