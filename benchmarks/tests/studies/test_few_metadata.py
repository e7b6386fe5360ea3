"""The study of few and wrong metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from icda.training import TrainConfig
from icda.training.run import load_task
from icda_bench.studies import few_metadata
from icda_bench.studies.few_metadata import Arguments, FewMetadataRow, few_metadata_table, fewer, main
from icda_bench.studies.row_file import read_row_file


def test_every_class_keeps_as_many_metadata_as_asked_for_and_as_many_labels_are_wrong() -> None:
    task = load_task(TrainConfig(task="digits_flip_noise"))
    assert task.metadata is not None
    found = fewer(task, 5, 0.1, seed=0).metadata
    assert found is not None
    before = task.metadata.targets[torch.isin(task.metadata.rows, found.rows)]
    assert torch.bincount(before, minlength=10).tolist() == [5] * 10
    truth = {int(row): int(label) for row, label in zip(task.metadata.rows, task.metadata.targets, strict=True)}
    wrong = sum(truth[int(row)] != int(label) for row, label in zip(found.rows, found.targets, strict=True))
    assert wrong == 5


def test_rows_are_kept_and_nothing_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_metadata, "CASES", ((2, 0.0),))
    out = tmp_path / "rows.csv"
    options = Arguments(out, seeds=(0,), epochs=1)
    main(options)
    rows = read_row_file(out, FewMetadataRow)
    assert [row.method for row in rows] == list(few_metadata.METHODS)
    assert all(0 < row.accuracy < 1 for row in rows)
    main(options)
    assert read_row_file(out, FewMetadataRow) == rows


def test_the_table_has_a_line_for_each_case() -> None:
    rows = [FewMetadataRow(2, 0.1, method, k, 0.9) for method in few_metadata.METHODS for k in range(2)]
    assert few_metadata_table(rows).splitlines()[-1].startswith("| 2 | 10% |")
