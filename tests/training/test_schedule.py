import math
from typing import Any

import pytest

from icda.training import TrainConfig
from icda.training.plan import learning_rate

TIMES = [k / 8 for k in range(8 * 20)]  # 20 epochs of eight iterations


def rates(**settings: Any) -> list[float]:
    config = TrainConfig(learning_rate=0.4, epochs=20, **settings)
    return [learning_rate(config, time, 20) for time in TIMES]


def test_constant_never_moves() -> None:
    assert rates(schedule="constant") == [0.4] * len(TIMES)


@pytest.mark.parametrize(("milestones", "falls"), [((0.6, 0.8), (12, 16)), ((3, 0.5), (3, 10)), ((), ())])
def test_step_multiplies_at_each_milestone_reached(milestones: tuple[float, ...], falls: tuple[int, ...]) -> None:
    expected = [0.4 * 0.2 ** sum(time >= fall for fall in falls) for time in TIMES]
    assert rates(schedule="step", milestones=milestones, decay=0.2) == pytest.approx(expected)


def test_a_share_of_the_epochs_falls_on_a_whole_epoch() -> None:
    config = TrainConfig(learning_rate=1.0, milestones=(0.5,), decay=0.1)
    assert [learning_rate(config, epoch, 7) for epoch in (3.9, 4.0)] == pytest.approx([1.0, 0.1])


def test_a_stage_moves_milestones_given_as_epochs_in_proportion_to_its_length() -> None:
    config = TrainConfig(learning_rate=1.0, milestones=(120, 0.8), decay=0.1)
    found = [learning_rate(config, epoch, 50, whole=200) for epoch in (29.9, 30.0, 39.9, 40.0)]
    assert found == pytest.approx([1.0, 0.1, 0.1, 0.01])
    assert learning_rate(config, 49.9, 200, whole=200) == 1.0


def test_cosine_follows_half_a_wave_from_the_rate_to_zero() -> None:
    expected = [0.2 * (1 + math.cos(math.pi * time / 20)) for time in TIMES]
    assert rates(schedule="cosine") == pytest.approx(expected)
    config = TrainConfig(learning_rate=0.4, schedule="cosine")
    assert [learning_rate(config, epoch, 20) for epoch in (0, 10, 20, 25)] == pytest.approx([0.4, 0.2, 0, 0])


@pytest.mark.parametrize("schedule", ["step", "cosine", "constant"])
def test_warm_up_rises_in_a_line_and_then_leaves_the_schedule_alone(schedule: str) -> None:
    plain, warmed = rates(schedule=schedule), rates(schedule=schedule, warmup_epochs=2.5)
    expected = [rate * min(time / 2.5, 1) for rate, time in zip(plain, TIMES, strict=True)]
    assert warmed == pytest.approx(expected)
    assert warmed[0] == 0
