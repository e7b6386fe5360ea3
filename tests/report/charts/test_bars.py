import re

import pytest

from icda.report.charts import bar, spark


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
