"""The cost of a look-ahead: which ways are measured, and that they take the same step. No figure is asserted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from icda_bench.cost import meta_speed
from icda_bench.cost.meta_speed import measure_meta_speed

WAYS = ["cross entropy", "head", "full", "difference", "full, half metadata", "difference, half metadata"]
WAYS += ["full, every 5th", "double backward"]


@pytest.fixture(scope="module")
def rows():
    return measure_meta_speed("resnet8", batch_size=8, classes=10, rounds=1)


def test_every_way_is_measured_against_cross_entropy(rows):
    assert [row["way"] for row in rows] == WAYS
    assert {(row["what"], row["classes"], row["batch"]) for row in rows} == {("resnet8", 10, 8)}
    assert (rows[0]["ratio"], rows[0]["memory_ratio"]) == (1, 1)
    assert all(row["ms"] > 0 and row["ratio"] > 0 and row["memory_ratio"] > 0 for row in rows)


def test_looking_ahead_now_and_then_has_the_peak_memory_of_a_look_ahead(rows):
    memory = {row["way"]: row["memory_ratio"] for row in rows}
    assert memory["full, every 5th"] == pytest.approx(memory["full"], rel=0.05)
    assert memory["cross entropy"] < memory["full"] < memory["double backward"]


def test_matrix_products_are_those_that_the_page_counts(rows):
    """Forward 1, backward 2: full 1 + 2 + 3 + 2 + 2, a difference 1 less, half of the metadata 1.5 less."""
    limits = {row["way"]: row["limit_ratio"] for row in rows}
    counted = {"full": 10, "difference": 9, "full, half metadata": 8.5, "difference, half metadata": 7.5}
    for way, wanted in counted.items():
        assert limits[way] == pytest.approx(wanted / 3, rel=0.03), way  # the first layer has no gradient at its input


def test_the_textbook_step_and_ours_have_the_same_gradients(monkeypatch):
    """Else the table would compare different things."""
    pairs = [meta_speed._batch(8, 4), meta_speed._batch(8, 4)]
    batch, metadata = ((inputs.double(), targets) for inputs, targets in pairs)

    def gradients(step: Callable[..., None]) -> list[Tensor]:
        torch.manual_seed(0)
        learner = meta_speed._learner("resnet8", 4, lookahead="full")
        learner.method.double()
        learner.context.models[0].double()
        found: list[Tensor] = []
        correct = learner.method.correct

        def watched(tensors: Any, values: Any, context: Any) -> None:
            found.extend(value.clone() for value in values)
            correct(tensors, values, context)

        monkeypatch.setattr(learner.method, "correct", watched)
        step(learner, batch, metadata)
        return found

    ours, textbook = gradients(meta_speed._meta_step), gradients(meta_speed._textbook_step)
    assert len(ours) == len(textbook) > 2
    for mine, other in zip(ours, textbook, strict=True):
        if mine.dim() == 3:  # a covariance: its symmetric part is what counts
            mine, other = mine + mine.mT, other + other.mT
        assert float(other.abs().max()) > 0
        assert float((mine - other).abs().max()) <= 1e-8 * float(other.abs().max())
