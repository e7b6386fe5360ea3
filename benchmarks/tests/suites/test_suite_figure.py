"""The figures hold what the ledger holds."""

import pytest
from benchmarks.tests.suites.ledgers import rows_for
from PIL import Image

from icda_bench.suites.suite import load_suite
from icda_bench.suites.suite_figure import curve_points, draw_suite
from icda_bench.suites.suite_table import ColumnRuns

pytest.importorskip("matplotlib")


def rows(name, keys):
    return [row for key in keys for row in rows_for(load_suite(name), key, "cpu", [0.4, 0.5])]


@pytest.mark.parametrize(
    ("name", "keys"), [("ablation", ["icda", "setting_1"]), ("sensitivity", ["icda", "lambda0_1", "beta_0.5"])]
)
def test_a_figure_is_drawn_and_not_empty(name, keys, tmp_path):
    path = tmp_path / "figures" / f"{name}.png"
    draw_suite(load_suite(name), rows(name, keys), path)
    with Image.open(path) as image:
        assert image.width > 400
        assert len(image.convert("RGB").getcolors(2**20) or []) > 10


def test_a_curve_goes_through_the_default_and_leaves_out_the_other_option():
    suite = load_suite("sensitivity")
    given = rows("sensitivity", ["lambda0_1", "icda", "beta_0.5", "lambda0_0.1"])
    runs = ColumnRuns(suite, suite.columns[0], "cpu", given)
    points = curve_points(runs, "lambda0")
    assert points == [(value, (40.0, 50.0)) for value in (0.1, 0.5, 1.0)]
    assert [value for value, _ in curve_points(runs, "beta")] == [0.1, 0.5]


def test_nothing_measured_is_an_error_and_not_an_empty_picture(tmp_path):
    with pytest.raises(ValueError, match="nothing of ablation was run yet"):
        draw_suite(load_suite("ablation"), [], tmp_path / "x.png")
