"""The study of last and best test epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from icda.training import TrainConfig, train
from icda_bench.studies import best_epoch
from icda_bench.studies.best_epoch import Arguments, BestEpochRow, best_epoch_table, main
from icda_bench.studies.row_file import read_row_file


def test_the_last_epoch_is_what_a_plain_training_gets_and_the_best_is_no_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {"model": "mlp", "epochs": 3}
    monkeypatch.setattr(best_epoch, "RECIPES", {"digits_flip_noise": recipe})
    out = tmp_path / "rows.csv"
    options = Arguments(out, seeds=1, tasks=("digits_flip_noise",))
    main(options)
    rows = read_row_file(out, BestEpochRow)
    plain = train(TrainConfig(task="digits_flip_noise", out=str(tmp_path / "plain"), method="cross_entropy", **recipe))
    assert [row.method for row in rows] == ["cross_entropy", "icda"]
    assert plain.metrics is not None
    assert rows[0].last == pytest.approx(plain.metrics["accuracy"])
    assert all(row.best >= row.last for row in rows)
    main(options)
    assert read_row_file(out, BestEpochRow) == rows  # nothing is run twice


def test_the_table_says_that_the_best_epoch_is_no_fair_figure() -> None:
    table = best_epoch_table([BestEpochRow("digits_flip_noise", "icda", k, 0.66, 0.8, 5) for k in range(2)])
    assert "not a fair figure" in table
    assert "| 66.0" in table
    assert "| 80.0" in table
