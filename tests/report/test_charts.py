import re
import xml.etree.ElementTree as ElementTree

import pytest

from icda.report.charts import HEIGHT, WIDTH, Line, bar, line_chart, ticks


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


def coordinates(svg: str) -> list[tuple[float, float]]:
    points = [pair for line in re.findall(r'points="([^"]*)" class="line', svg) for pair in line.split()]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points)]


def test_lines_stay_inside_the_picture_and_the_picture_is_described() -> None:
    svg = line_chart("Accuracy", [Line("training", [(1, 0.2), (2, 0.9), (3, 0.4)])], percent=True)
    ElementTree.fromstring(svg)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in coordinates(svg))
    assert "<title>Accuracy</title>" in svg
    assert "training goes from 20 % at epoch 1 to 40 % at epoch 3." in svg


def test_a_gap_splits_the_line_and_a_lone_point_is_a_dot() -> None:
    svg = line_chart("Loss", [Line("training", [(1, 3.0), (2, 2.0), (3, None), (4, 1.0)])], percent=False)
    assert svg.count("<polyline") - svg.count('class="grid"') == 2  # the legend and the first two points
    assert svg.count("<circle") == 1


def test_two_lines_differ_by_more_than_colour() -> None:
    svg = line_chart("Loss", [Line("a", [(1, 1.0), (2, 2.0)]), Line("b", [(1, 2.0), (2, 1.0)])], percent=False)
    assert "series-0" in svg
    assert "series-1" in svg


def test_a_single_epoch_is_drawn() -> None:
    assert "<circle" in line_chart("Loss", [Line("a", [(1, 0.0)])], percent=False)


@pytest.mark.parametrize(("share", "width"), [(0.5, "50.0"), (-1.0, "0.0"), (2.0, "100.0")])
def test_a_bar_is_filled_to_its_share_and_never_beyond(share: float, width: str) -> None:
    assert f'<rect width="{width}" height="10" class="fill">' in bar(share)
    assert 'aria-hidden="true"' in bar(share)
