import re

import pytest

from icda.report.charts import Dot, Whisker, bar, scatter, spark, whiskers


def test_a_class_ten_times_as_large_lies_one_step_further_whatever_its_size() -> None:
    dots = [Dot("a", 1, 0.0), Dot("b", 10, 0.5), Dot("c", 100, 1.0, {"data_class": "c2"})]
    made = scatter("By size", dots, "Training samples", "samples")
    x, y = ([float(v) for v in re.findall(rf'{axis}="([\d.]+)"', made)] for axis in ("cx", "cy"))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2)
    assert y[0] > y[1] > y[2]
    assert 'data-class="c2"' in made
    assert "b\n50 %, 10 samples" in made
    assert "the lowest is a with 0 %" in made


def test_whiskers_reach_one_deviation_to_each_side() -> None:
    made = whiskers("Accuracy", [Whisker("icda", 0.5, 0.1, 3), Whisker("ce", 0.4, None, 1)], True, "Accuracy")
    (start, end), centre = (
        [float(pair.split(",")[0]) for pair in re.search(r'points="([^"]*)" class="span"', made)[1].split()],
        float(re.search(r'cx="([\d.]+)"', made)[1]),
    )
    assert (start + end) / 2 == pytest.approx(centre, abs=0.1)
    assert made.count('class="span"') == 1
    assert "icda\n50 % ± 10 % (3 runs)" in made
    assert "ce\n40 % (1 run)" in made


def test_a_long_name_is_shortened_in_the_picture_but_not_in_the_tip() -> None:
    made = whiskers("Accuracy", [Whisker("m" * 40, 0.5, None, 1), Whisker("b", 0.6, None, 1)], True, "Accuracy")
    assert f">{'m' * 19}…<" in made
    assert "m" * 40 in made


@pytest.mark.parametrize(("share", "width"), [(0.5, "50.0"), (-1.0, "0.0"), (2.0, "100.0")])
def test_a_bar_is_filled_to_its_share_and_never_beyond(share: float, width: str) -> None:
    assert f'<rect width="{width}" height="10" class="fill">' in bar(share)
    assert 'aria-hidden="true"' in bar(share)


def test_the_interval_is_drawn_where_it_lies() -> None:
    assert '<rect x="40.0" y="4" width="20.0" height="2" class="whisker">' in bar(0.5, (0.4, 0.6))
    assert "whisker" not in bar(0.5)


def test_a_spark_has_a_bar_for_every_count_above_zero_and_marks_those_below_zero() -> None:
    made = spark([1, 0, 4, 2], middle=1)
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"', made)]
    assert heights == [5.0, 20.0, 10.0]
    assert made.count("below") == 1
    assert "rect" not in spark([])
