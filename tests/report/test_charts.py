"""Charts and heat maps: what is drawn, and what can be read off."""

import base64
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from html import unescape

import numpy as np
import pytest
from PIL import Image

from icda.report.charts import (
    BANDS,
    HEIGHT,
    WIDTH,
    Dot,
    Frame,
    Series,
    Whisker,
    bar,
    histogram,
    line_chart,
    scatter,
    spark,
    ticks,
    whiskers,
)
from icda.report.sections.breakdown import Heat, heat_map


@pytest.mark.parametrize("low", [-3.0, 0.0, 0.013, 0.5, 1.0, 97.0])
@pytest.mark.parametrize("span", [0.0, 1e-4, 0.3, 5.0, 1e4])
def test_ticks_enclose_the_range_and_are_few(low, span):
    made = ticks(low, low + span)
    assert made[0] <= low <= low + span <= made[-1] + 1e-12
    assert 2 <= len(made) <= 7
    assert made == sorted(set(made))
    assert ticks(1.0, 1.0)[-1] == 1.0, "no tick above an accuracy of one"
    assert ticks(1, 3, whole=True) == [1.0, 2.0, 3.0]


def test_values_lie_in_proportion_and_upwards():
    frame = Frame((0.0, 10.0), (-1.0, 1.0))
    assert frame.x(5.0) == pytest.approx((frame.x(0.0) + frame.x(10.0)) / 2)
    assert frame.y(0.0) == pytest.approx((frame.y(-1.0) + frame.y(1.0)) / 2)
    assert frame.y(1.0) < frame.y(-1.0) == frame.bottom
    last = frame.across([10.0], ["100.00 %"], "Share")[0]
    assert float(re.search(r'x="([\d.]+)"', last)[1]) + len("100.00 %") * 3 <= WIDTH, "a label that sticks out"


def picture(made):
    """The chart itself, without the legend below it."""
    return re.search(r'<svg class="chart".*?</svg>|<svg[^>]*class="chart".*?</svg>', made, re.DOTALL)[0]


def coordinates(svg):
    points = [pair for line in re.findall(r'points="([^"]*)" class="line', svg) for pair in line.split()]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points)]


def test_lines_stay_inside_the_picture_and_the_picture_is_described():
    svg = picture(line_chart("Accuracy", [Series("training", [(1, 0.2), (2, 0.9), (3, 0.4)])], percent=True))
    ElementTree.fromstring(svg)
    assert len(coordinates(svg)) == 3
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in coordinates(svg))
    assert "<title>Accuracy</title>" in svg
    assert "training goes from 20 % at epoch 1 to 40 % at epoch 3." in svg


def test_a_gap_splits_the_line_and_a_lone_point_is_a_dot():
    svg = picture(line_chart("Loss", [Series("training", [(1, 3.0), (2, 2.0), (3, None), (4, 1.0)])], percent=False))
    assert svg.count('class="line') == 1
    assert svg.count("<circle") == 1
    assert "<circle" in line_chart("Loss", [Series("a", [(1, 0.0)])], percent=False)


def test_all_values_can_be_read_off_at_their_x():
    lines = [Series("a", [(1, 0.25), (2, 0.5)], [0.125, None]), Series("b", [(1, 1.0), (2, None)])]
    made = line_chart("Accuracy", lines, percent=True)
    assert re.findall(r'data-tip="([^"]*)"', made) == ["Epoch 1\na: 25 % ± 12 %\nb: 100 %", "Epoch 2\na: 50 %"]
    assert made.count("series-0") == made.count("series-1") == 2  # a style each, of the line and of its legend
    many = line_chart("Loss", [Series("a", [(x, float(x)) for x in range(1000)])], percent=False)
    assert BANDS / 2 <= many.count("data-tip") <= BANDS, "places to point at must not fill the page"


def test_a_class_ten_times_as_large_lies_one_step_further_whatever_its_size():
    dots = [Dot("a", 1, 0.0), Dot("b", 10, 0.5), Dot("c", 100, 1.0, {"data_class": "c2"})]
    made = scatter("By size", dots, "Training samples", "samples")
    x, y = ([float(v) for v in re.findall(rf'{axis}="([\d.]+)"', made)] for axis in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert y[0] > y[1] > y[2]
    assert 'data-class="c2"' in made
    assert "b\n50 %, 10 samples" in made
    assert "the lowest is a with 0 %" in made


def test_whiskers_reach_one_deviation_to_each_side():
    made = whiskers("Accuracy", [Whisker("icda", 0.5, 0.1, 3), Whisker("ce", 0.4, None, 1)], True, "Accuracy")
    (start, end), centre = (
        [float(pair.split(",")[0]) for pair in re.search(r'points="([^"]*)" class="span"', made)[1].split()],
        float(re.search(r'cx="([\d.]+)"', made)[1]),
    )
    assert (start + end) / 2 == pytest.approx(centre, abs=0.1)
    assert made.count('class="span"') == 1
    assert "icda\n50 % ± 10 % (3 runs)" in made
    assert "ce\n40 % (1 run)" in made
    made = whiskers("Accuracy", [Whisker("m" * 40, 0.5, None, 1), Whisker("b", 0.6, None, 1)], True, "Accuracy")
    assert f">{'m' * 19}…<" in made
    assert "m" * 40 in made


@pytest.mark.parametrize(("share", "width"), [(0.5, "50.0"), (-1.0, "0.0"), (2.0, "100.0")])
def test_a_bar_is_filled_to_its_share_and_never_beyond(share, width):
    assert f'<rect width="{width}" height="10" class="fill">' in bar(share)
    assert 'aria-hidden="true"' in bar(share)
    assert "whisker" not in bar(share)
    assert '<rect x="40.0" y="4" width="20.0" height="2" class="whisker">' in bar(share, (0.4, 0.6))


def test_a_spark_has_a_bar_for_every_count_above_zero_and_marks_those_below_zero():
    made = spark([1, 0, 4, 2], middle=1)
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"', made)]
    assert heights == [5.0, 20.0, 10.0]
    assert made.count("below") == 1
    assert "rect" not in spark([])


def test_bars_hold_the_samples_of_all_classes_and_the_rows_stay_for_the_filter():
    made = histogram("Margins", [-1.0, 0.0, 1.0], [[1, 2], [3, 0]], "c0 c1", "Margin")
    assert [unescape(tip) for tip in re.findall(r'data-tip="([^"]*)"', made)] == [
        "−1 to 0\n4 samples, 66.7 %",
        "0 to 1\n2 samples, 33.3 %",
    ]
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" class="fill', made)]
    assert heights[0] == pytest.approx(2 * heights[1])
    assert json.loads(unescape(re.search(r'data-rows="([^"]*)"', made)[1])) == [[1, 2], [3, 0]]
    assert 'data-tokens="c0 c1"' in made
    assert made.count("fill below column") == made.count('class="zero"') == 1
    flat = histogram("Strengths", [0.0, 1.0], [[0]], "c0", "Strength")
    assert "0 samples, 0.0 %" in flat
    assert 'class="zero"' not in flat


@pytest.mark.parametrize(("edges", "rows"), [([0.0, 1.0], [[1, 2]]), ([0.0], [[]]), ([0.0, 1.0], [])])
def test_counts_that_do_not_fit_their_edges_are_refused(edges, rows):
    with pytest.raises(ValueError, match="counts in every class's row"):
        histogram("Margins", edges, rows, "c0", "Margin")


def heat(size, names=None):
    values = np.zeros((size, size))
    np.fill_diagonal(values, 3)
    values[0, 1] = 1
    return Heat(
        caption="Squares",
        corner="True ↓ Predicted →",
        names=names or [f"name {i}" for i in range(size)],
        values=values.tolist(),
        share=(values / values.sum(1, keepdims=True)).tolist(),
        text=lambda value: f"{value:.0f}",
        tip="true {row}, predicted {column}\n{value} samples, {share}",
        tokens=" ".join(f"c{i}" for i in range(size)),
    )


def test_few_classes_show_every_number_and_say_what_it_is():
    made = heat_map(heat(2))
    tips = [unescape(tip) for tip in re.findall(r'data-tip="([^"]*)"', made)]
    assert tips[:2] == [
        "true name 0, predicted name 0\n3 samples, 75.0 %",
        "true name 0, predicted name 1\n1 samples, 25.0 %",
    ]
    assert len(tips) == 4
    assert 'class="shade right shade-17"' in made  # 20 * sqrt(0.75)
    assert 'class="shade shade-10"' in made
    assert 'data-pair="c0 c1"' in made
    assert "data-sortable" not in made


def test_a_name_that_looks_like_a_place_holder_stays_as_it_is():
    assert "true {value}, predicted {share}" in unescape(heat_map(heat(2, ["{value}", "{share}"])))


def test_many_classes_become_one_pixel_a_cell_with_all_values_for_pointing():
    made = heat_map(heat(30))
    assert "<table" not in made
    image = Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", made)[1])))
    pixels = np.asarray(image)
    assert pixels.shape == (30, 30, 4)
    assert pixels[0, 0, 3] == round(255 * np.sqrt(0.75))
    assert pixels[0, 1, 3] == round(255 * np.sqrt(0.25))
    assert pixels[0, 2, 3] == 0
    assert tuple(pixels[0, 0, :3]) != tuple(pixels[0, 1, :3])
    cells = json.loads(unescape(re.search(r'data-cells="([^"]*)"', made)[1]))
    assert cells == heat(30).values
    assert len(json.loads(unescape(re.search(r'data-names="([^"]*)"', made)[1]))) == 30
    assert "30 rows and columns" in made
