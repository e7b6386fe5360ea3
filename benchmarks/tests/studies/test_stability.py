"""The stability study: which trainings are missing, and what the table says of those that are there."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from icda_bench.studies import stability
from icda_bench.studies.stability import Arguments, StabilityRow, measure, read_stability, stability_table


def _row(seed: int, clip: str = "default", **changed: object) -> StabilityRow:
    values = {"diverged": False, "largest_loss": 2.5, "train_loss": 0.5, "test_accuracy": 0.5, "seconds": 1.0}
    return StabilityRow(40, 2, "icda", "default", clip, seed, **{**values, **changed})  # type: ignore[arg-type]


def test_rows_survive_the_way_through_a_file(tmp_path: Path) -> None:
    rows = [_row(0), _row(1, "none", largest_loss=None), _row(2, diverged=True, largest_loss=None, train_loss=None)]
    with (tmp_path / "s.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(StabilityRow)])
        writer.writeheader()
        writer.writerows(map(asdict, rows))
    assert read_stability(tmp_path / "s.csv") == rows


def test_the_table_keeps_clipped_and_unclipped_trainings_apart_and_shows_the_worst_loss() -> None:
    lost = {"diverged": True, "largest_loss": None, "train_loss": None, "test_accuracy": None}
    table = stability_table([_row(0), _row(1, largest_loss=9.5, test_accuracy=0.7), _row(0, "none", **lost)])
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert lines[0][4:7] == ["default", "0 of 2", "9.5 (2)"]
    assert lines[1][4:7] == ["none", "1 of 1", ""]
    assert lines[0][7].startswith("60.0")


def test_only_trainings_that_the_file_lacks_are_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, bool]] = []

    def train_once(folder: Path, method: str, seed: int, options: Arguments, out: Path) -> tuple[None, None, None]:
        asked.append((seed, options.unclipped))
        return None, None, None

    monkeypatch.setattr(stability, "train_once", train_once)
    monkeypatch.setattr(stability, "make_folder", lambda root, images, classes: root)
    options = Arguments(tmp_path / "s.csv", seeds=3, images=(40,), classes=(2,), unclipped=True)
    found = list(measure(options, [_row(0, "none"), _row(1)]))
    assert asked == [(1, True), (2, True)]
    assert [(row.clip, row.seed, row.diverged) for row in found] == [("none", 1, True), ("none", 2, True)]
