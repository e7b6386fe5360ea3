import json
import re
from html import unescape

import pytest

from icda.report.charts import histogram


def test_bars_hold_the_samples_of_all_classes_and_the_rows_stay_for_the_filter() -> None:
    made = histogram("Margins", [-1.0, 0.0, 1.0], [[1, 2], [3, 0]], "c0 c1", "Margin")
    assert [unescape(tip) for tip in re.findall(r'data-tip="([^"]*)"', made)] == [
        "−1 to 0\n4 samples, 66.7 %",
        "0 to 1\n2 samples, 33.3 %",
    ]
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" class="fill', made)]
    assert heights[0] == pytest.approx(2 * heights[1])
    assert json.loads(unescape(re.search(r'data-rows="([^"]*)"', made)[1])) == [[1, 2], [3, 0]]
    assert 'data-tokens="c0 c1"' in made


def test_zero_is_marked_and_what_lies_below_it_looks_different() -> None:
    made = histogram("Margins", [-1.0, 0.0, 1.0], [[1, 2]], "c0", "Margin")
    assert made.count("fill below column") == 1
    assert 'class="zero"' in made
    assert 'class="zero"' not in histogram("Strengths", [0.0, 0.5, 1.0], [[1, 2]], "c0", "Strength")


@pytest.mark.parametrize(("edges", "rows"), [([0.0, 1.0], [[1, 2]]), ([0.0], [[]]), ([0.0, 1.0], [])])
def test_counts_that_do_not_fit_their_edges_are_refused(edges: list[float], rows: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="counts in every class's row"):
        histogram("Margins", edges, rows, "c0", "Margin")


def test_an_empty_histogram_is_drawn_flat() -> None:
    assert "0 samples, 0.0 %" in histogram("Margins", [0.0, 1.0], [[0]], "c0", "Margin")
