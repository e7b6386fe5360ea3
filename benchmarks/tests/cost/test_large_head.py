"""Heads of many classes: that each way is measured in a child, and learns. No figure is asserted."""

import pytest

from icda_bench.cost import large_head
from icda_bench.cost.large_head import WAYS, measure_large_heads, train_head


@pytest.mark.parametrize("way", WAYS)
def test_every_way_learns_the_batch_it_repeats(way, monkeypatch):
    monkeypatch.setattr(large_head, "NEGATIVES", 50)
    row = train_head(way, classes=400, features=16, steps=8)
    assert (row["way"], row["classes"], row["features"], row["batch"]) == (way, 400, 16, large_head.BATCH)
    assert row["loss_last"] < row["loss_first"]
    assert row["peak_mib"] >= row["imports_mib"] > 10


def test_a_way_is_measured_in_a_child():
    (row,) = measure_large_heads([(300, 8)], ["icda, sampled"], steps=3)
    assert (row["way"], row["classes"]) == ("icda, sampled", 300)
