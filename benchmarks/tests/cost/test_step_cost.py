"""What is measured and how it is put together. No figure of this machine is asserted."""

from __future__ import annotations

from typing import Any

import pytest

from icda_bench.cost import step_cost
from icda_bench.cost.step_cost import StepCostRow, measure_step


@pytest.fixture(scope="module")
def rows() -> list[StepCostRow]:
    return [measure_step("resnet8", classes, batch=4, steps=3) for classes in (10, 100)]


def test_a_network_is_measured_with_ten_and_a_hundred_classes(rows: list[StepCostRow]) -> None:
    assert [(row.classes, row.features, row.covariance, row.batch, row.rounds) for row in rows] == [
        (10, 64, "full", 4, 3),
        (100, 64, "full", 4, 3),
    ]
    assert rows[1].parameters - rows[0].parameters == 90 * 65
    assert all(row.ce_ms > 0 and row.icda_ms > 0 and row.low <= row.direct <= row.high for row in rows)


def test_figures_are_made_of_paired_steps_and_of_the_loss_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 100, 200 and 400 ms, to which ICDA adds 2, 4 and 6 per cent; the loss alone adds 1 ms, 4 ms at 128."""
    rounds = iter([(0.1, 0.102), (0.2, 0.208), (0.4, 0.424)])
    heads = {8: 0.001, 128: 0.004}

    def interleave(steps: dict[str, Any], rounds_: int = 0, warm_up: int = 3, **given: int) -> dict[str, list[float]]:
        pairs = [next(rounds) for _ in range(given.get("rounds", rounds_))]
        return {"ce": [a for a, _ in pairs], "icda": [b for _, b in pairs]}

    def head(classes: int, features: int, batch: int, covariance: str) -> float:
        assert (classes, features, covariance) == (10, 64, "full")
        return heads[batch]

    monkeypatch.setattr(step_cost, "interleave", interleave)
    monkeypatch.setattr(step_cost, "head_extra_seconds", head)
    row = measure_step("resnet32", 10, batch=8, steps=3)
    assert (row.direct, row.low, row.high) == (4.0, 3.0, 5.0)
    assert (row.ce_ms, row.icda_ms, row.head_extra_ms) == (200.0, 208.0, 1.0)
    assert row.head == 0.5
    assert row.head_at_128 == 0.125, "4 ms of a step that takes sixteen times 200"


def test_a_covariance_that_does_not_fit_is_diagonal_and_the_row_says_so(recwarn: pytest.WarningsRecorder) -> None:
    row = measure_step("linear", 10, batch=2, steps=3, seconds=0.01)
    assert (row.features, row.covariance, row.rounds) == (3072, "diagonal", 3)
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": 1}, "batch must be 2 or more"),
        ({"batch": 4, "steps": 2}, "steps must be 3 or more"),
        ({"batch": 4, "seconds": 0}, "seconds positive, got 15 and 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(
    given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_cost, "training_steps", lambda *_: pytest.fail("measured all the same"))
    with pytest.raises(ValueError, match=message):
        measure_step("resnet8", 10, **given)
