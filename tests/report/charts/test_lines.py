import re
import xml.etree.ElementTree as ElementTree

from icda.report.charts import BANDS, HEIGHT, WIDTH, Series, line_chart


def picture(made: str) -> str:
    """The chart itself, without the legend below it."""
    return re.search(r'<svg class="chart".*?</svg>|<svg[^>]*class="chart".*?</svg>', made, re.DOTALL)[0]


def coordinates(svg: str) -> list[tuple[float, float]]:
    points = [pair for line in re.findall(r'points="([^"]*)" class="line', svg) for pair in line.split()]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points)]


def test_lines_stay_inside_the_picture_and_the_picture_is_described() -> None:
    svg = picture(line_chart("Accuracy", [Series("training", [(1, 0.2), (2, 0.9), (3, 0.4)])], percent=True))
    ElementTree.fromstring(svg)
    assert len(coordinates(svg)) == 3
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in coordinates(svg))
    assert "<title>Accuracy</title>" in svg
    assert "training goes from 20 % at epoch 1 to 40 % at epoch 3." in svg


def test_a_gap_splits_the_line_and_a_lone_point_is_a_dot() -> None:
    svg = picture(line_chart("Loss", [Series("training", [(1, 3.0), (2, 2.0), (3, None), (4, 1.0)])], percent=False))
    assert svg.count('class="line') == 1
    assert svg.count("<circle") == 1


def test_two_lines_differ_by_more_than_colour() -> None:
    made = line_chart("Loss", [Series("a", [(1, 1.0), (2, 2.0)]), Series("b", [(1, 2.0), (2, 1.0)])], percent=False)
    assert made.count("series-0") == made.count("series-1") == 2  # the line and its legend


def test_all_values_can_be_read_off_at_their_x() -> None:
    lines = [Series("a", [(1, 0.25), (2, 0.5)], [0.125, None]), Series("b", [(1, 1.0), (2, None)])]
    tips = re.findall(r'data-tip="([^"]*)"', line_chart("Accuracy", lines, percent=True))
    assert tips == ["Epoch 1\na: 25 % ± 12 %\nb: 100 %", "Epoch 2\na: 50 %"]


def test_many_epochs_do_not_fill_the_page_with_places_to_point_at() -> None:
    made = line_chart("Loss", [Series("a", [(x, float(x)) for x in range(1000)])], percent=False)
    assert BANDS / 2 <= made.count("data-tip") <= BANDS


def test_a_single_epoch_is_drawn() -> None:
    assert "<circle" in line_chart("Loss", [Series("a", [(1, 0.0)])], percent=False)
