from dataclasses import replace

import numpy as np
from PIL import Image

from icda_bench.studies import figures


def test_one_call_trains_draws_and_files_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "DIGITS", replace(figures.DIGITS, epochs=1))
    options = figures.Arguments(
        waterbirds=False, out=tmp_path / "runs", pictures=tmp_path / "pictures", tables=tmp_path / "tables"
    )
    made = figures.make_figures(options)
    assert [path.name for path in made] == ["margins.png", "variances.png"]
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["margins.png", "variances.png"]
    tables = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    assert set(tables) == {"figure_margins.csv", "figure_margins_summary.csv", "figure_variances.csv"}
    for label in ("CE", "ISDA", "RISDA", "ICDA"):
        assert f"\n{label}," in tables["figure_margins_summary.csv"]
    models = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("model.pt")}
    assert len(models) == 4
    figures.make_figures(options)  # finished runs are read, not trained again
    assert {path: path.stat().st_mtime_ns for path in models} == models


def test_only_a_picture_that_is_too_large_loses_colours(tmp_path):
    path = tmp_path / "p.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)).save(path)
    before = path.read_bytes()
    figures.shrink(path, largest=len(before))
    assert path.read_bytes() == before
    figures.shrink(path, largest=len(before) - 1)
    assert path.stat().st_size < 0.5 * len(before)
    assert Image.open(path).size == (60, 60)
