"""Rows of a study in a CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from icda_bench.studies.row_file import append_rows, read_row_file


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    share: float


def test_rows_come_back_as_they_were_and_new_ones_are_added(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.csv"
    assert read_row_file(path, Row) == []
    first, second = Row("a, b", 3, 0.1), Row("c", -1, 1e-9)
    append_rows(path, Row, [first])
    append_rows(path, Row, [second])
    assert read_row_file(path, Row) == [first, second]


def test_a_study_that_is_cut_short_keeps_what_it_had(tmp_path: Path) -> None:
    def rows():  # type: ignore[no-untyped-def]
        yield Row("kept", 1, 0.5)
        raise KeyboardInterrupt

    path = tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        append_rows(path, Row, rows())
    assert read_row_file(path, Row) == [Row("kept", 1, 0.5)]
