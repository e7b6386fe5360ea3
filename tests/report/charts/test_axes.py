import re

import pytest

from icda.report.charts import WIDTH, Frame, ticks


@pytest.mark.parametrize("low", [-3.0, 0.0, 0.013, 0.5, 1.0, 97.0])
@pytest.mark.parametrize("span", [0.0, 1e-4, 0.3, 5.0, 1e4])
def test_ticks_enclose_the_range_and_are_few(low: float, span: float) -> None:
    made = ticks(low, low + span)
    assert made[0] <= low <= low + span <= made[-1] + 1e-12
    assert 2 <= len(made) <= 7
    assert made == sorted(set(made))


def test_a_constant_accuracy_of_one_has_no_tick_above() -> None:
    assert ticks(1.0, 1.0)[-1] == 1.0


def test_whole_ticks_are_whole() -> None:
    assert ticks(1, 3, whole=True) == [1.0, 2.0, 3.0]


def test_values_lie_in_proportion_and_upwards() -> None:
    frame = Frame((0.0, 10.0), (-1.0, 1.0))
    assert frame.x(5.0) == pytest.approx((frame.x(0.0) + frame.x(10.0)) / 2)
    assert frame.y(0.0) == pytest.approx((frame.y(-1.0) + frame.y(1.0)) / 2)
    assert frame.y(1.0) < frame.y(-1.0) == frame.bottom


def test_the_last_label_does_not_stick_out() -> None:
    made = Frame((0.0, 1.0), (0.0, 1.0)).across([1.0], ["100.00 %"], "Share")[0]
    x = float(re.search(r'x="([\d.]+)"', made)[1])
    assert x + len("100.00 %") * 3 <= WIDTH
