from __future__ import annotations

from pathlib import Path
from typing import Any

from icda.bench.ledger import COLUMNS, read_ledger, to_row, write_ledger


def result(**changes: Any) -> dict[str, Any]:
    return {
        "task": "digits_lt",
        "method": "icda",
        "seed": 0,
        "split": "test",
        "selection": "last",
        "model": "small_cnn",
        "seconds": 1.5,
        "metrics": {"accuracy": 0.5, "worst_group_accuracy": None},
        "config": {"epochs": 3, "options": {"lambda0": 0.25, "beta": 0}},
        "config_hash": "abc",
        "data_hash": "0123456789abcdef",
        "environment": {"commit": None, "processor": "chip", "cores": 2, "torch": "2.13.0"},
        **changes,
    }


def test_a_figure_that_was_not_measured_is_blank() -> None:
    row = to_row(result(), "smoke")
    assert row["accuracy"] == "0.500000"
    assert row["worst_group_accuracy"] == row["nll"] == ""


def test_options_hash_and_machine_stand_in_the_row() -> None:
    row = to_row(result(), "smoke")
    assert (row["options"], row["data_hash"], row["machine"]) == (
        "beta=0 lambda0=0.25",
        "0123456789ab",
        "chip, 2 cores",
    )


def test_rows_are_sorted_and_come_back_as_written(tmp_path: Path) -> None:
    rows = [to_row(result(seed=seed), "smoke") for seed in (10, 2, 0)]
    write_ledger(tmp_path / "deep" / "x.csv", rows)
    back = read_ledger(tmp_path / "deep" / "x.csv")
    assert [row["seed"] for row in back] == ["0", "2", "10"]
    assert list(back[0]) == list(COLUMNS)
    assert sorted(map(str, back)) == sorted(map(str, rows))
