"""Sums and products by label against loops, on every path: padded blocks, single blocks, one sample at a time."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icda.functional import grouping
from icda.functional.grouping import LabelGroups

labels = st.lists(st.integers(0, 9), min_size=1, max_size=40)


def paths(targets):
    """As on the CPU, where sizes are known, and as on a device, where reading them would stop its queue."""
    return [LabelGroups.of(targets, 10), LabelGroups(targets, 10, None)]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(labels)
def test_sums_products_and_matrices_are_those_of_a_loop_on_every_path(given_labels):
    targets = torch.tensor(given_labels)
    generator = torch.Generator().manual_seed(len(given_labels))
    left, right = (torch.randn(len(targets), width, generator=generator, dtype=torch.float64) for width in (3, 2))
    matrices = torch.randn(10, 3, 2, generator=generator, dtype=torch.float64)
    for groups in paths(targets):
        for label in range(10):
            rows = targets == label
            torch.testing.assert_close(groups.sums(left)[label], left[rows].sum(0))
            torch.testing.assert_close(groups.products(left, right)[label], left[rows].T @ right[rows])
        expected = torch.stack([row @ matrices[label] for row, label in zip(left, given_labels, strict=True)])
        torch.testing.assert_close(groups.apply(left, matrices), expected)


def test_one_sample_at_a_time_is_the_same_in_chunks_of_any_size(monkeypatch):
    targets, values = torch.arange(7) % 3, torch.randn(7, 4)
    groups = LabelGroups(targets, 3, None)
    whole = groups.products(values, values)
    monkeypatch.setattr(grouping, "CHUNK_ELEMENTS", 20)
    torch.testing.assert_close(groups.products(values, values), whole)


def test_padded_rows_stand_under_their_label_in_order():
    padded = LabelGroups.of(torch.tensor([2, 0, 2]), 3).padded(torch.tensor([[1.0], [2.0], [4.0]]))
    assert padded[:, :, 0].tolist() == [[2.0, 0.0], [0.0, 0.0], [1.0, 4.0]]


def test_one_frequent_label_among_many_rare_ones_is_not_padded_and_even_labels_are():
    assert not LabelGroups.of(torch.cat([torch.zeros(50).long(), torch.arange(30)]), 30).fits
    assert LabelGroups.of(torch.arange(60) % 30, 30).fits
