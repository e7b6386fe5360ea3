"""The figures hold what the ledger holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from icda_bench.suites.suite import load_suite
from icda_bench.suites.suite_figure import curve_points, draw_suite

pytest.importorskip("matplotlib")


def rows(name: str, keys: list[str], accuracies: list[float]) -> list[dict[str, Any]]:
    from icda.results.ledger import COLUMNS, options_text
    from icda_bench.suites.suite import cell_config

    suite = load_suite(name)
    found = []
    for key in keys:
        config = cell_config(suite, "cpu", suite.columns[0], suite.row(key))
        for seed, accuracy in enumerate(accuracies):
            found.append(
                {
                    **dict.fromkeys(COLUMNS, ""),
                    **{"task": config.task, "method": config.method, "model": config.model, "tier": "cpu"},
                    **{"options": options_text(config.options), "epochs": str(config.epochs)},
                    **{"seed": str(seed), "accuracy": str(accuracy)},
                    **{"selection": config.selection, "attributes": config.attributes, "precision": config.precision},
                }
            )
    return found


@pytest.mark.parametrize(
    ("name", "keys"), [("ablation", ["icda", "setting_1"]), ("sensitivity", ["icda", "lambda0_1", "beta_0.5"])]
)
def test_a_figure_is_drawn_and_not_empty(name: str, keys: list[str], tmp_path: Path) -> None:
    path = tmp_path / "figures" / f"{name}.png"
    draw_suite(load_suite(name), rows(name, keys, [0.4, 0.5]), path)
    with Image.open(path) as image:
        assert image.width > 400
        assert len(image.convert("RGB").getcolors(2**20) or []) > 10


def test_a_curve_goes_through_the_default_and_leaves_out_the_other_option() -> None:
    suite = load_suite("sensitivity")
    given = rows("sensitivity", ["lambda0_1", "icda", "beta_0.5", "lambda0_0.1"], [0.4, 0.5])
    assert curve_points(suite, suite.columns[0], "cpu", given, "lambda0") == [
        (0.1, (40.0, 50.0)),
        (0.5, (40.0, 50.0)),
        (1.0, (40.0, 50.0)),
    ]
    assert [value for value, _ in curve_points(suite, suite.columns[0], "cpu", given, "beta")] == [0.1, 0.5]


def test_nothing_measured_is_an_error_and_not_an_empty_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing of ablation was run yet"):
        draw_suite(load_suite("ablation"), [], tmp_path / "x.png")
    with pytest.raises(ValueError, match="table2 has no figure"):
        draw_suite(load_suite("table2"), [], tmp_path / "x.png")
