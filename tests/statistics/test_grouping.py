import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icda.statistics.grouping import LabelGroups

labels = st.lists(st.integers(0, 9), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(labels)
def test_collect_undoes_spread(targets: list[int]) -> None:
    groups = LabelGroups.of(torch.tensor(targets))
    values = torch.arange(3.0 * len(targets)).view(-1, 3) + 1
    assert torch.equal(groups.collect(groups.spread(values)), values)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(labels)
def test_spread_puts_each_row_under_its_label_and_zeros_elsewhere(targets: list[int]) -> None:
    groups = LabelGroups.of(torch.tensor(targets))
    values = torch.arange(1.0, len(targets) + 1)[:, None]
    padded = groups.spread(values)
    assert groups.labels.tolist() == sorted(set(targets))
    assert padded.shape == (len(set(targets)), max(targets.count(label) for label in targets), 1)
    for place, label in enumerate(groups.labels.tolist()):
        expected = [float(i + 1) for i, target in enumerate(targets) if target == label]
        found = padded[place].flatten().tolist()
        assert found == expected + [0.0] * (len(found) - len(expected))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(labels)
def test_blocks_hold_the_rows_of_each_label_in_order(targets: list[int]) -> None:
    groups = LabelGroups.of(torch.tensor(targets))
    blocks = groups.blocks(torch.arange(1.0, len(targets) + 1)[:, None])
    for label, block in zip(groups.labels.tolist(), blocks, strict=True):
        assert block.flatten().tolist() == [float(i + 1) for i, target in enumerate(targets) if target == label]


def test_a_label_without_sample_has_an_empty_block_and_a_row_of_zeros() -> None:
    groups = LabelGroups.from_places(torch.tensor([1, 4, 6]), torch.tensor([2, 0, 2]))
    values = torch.tensor([[1.0], [2.0], [4.0]])
    assert [block.flatten().tolist() for block in groups.blocks(values)] == [[2.0], [], [1.0, 4.0]]
    assert groups.spread(values).sum(1).flatten().tolist() == [2.0, 0.0, 5.0]


def test_one_frequent_label_among_many_rare_ones_is_wasteful_and_even_labels_are_not() -> None:
    assert LabelGroups.of(torch.cat([torch.zeros(50).long(), torch.arange(30)])).wasteful
    assert not LabelGroups.of(torch.arange(60) % 30).wasteful
    assert not LabelGroups.of(torch.zeros(60).long()).wasteful
