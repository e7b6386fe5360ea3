"""Rows in CSV files: they come back as they were, and a study goes on where it stopped."""

from dataclasses import dataclass

import pytest

from icda_bench.rows import append_rows, fill, read_rows, read_table, write_rows


@dataclass(frozen=True)
class MadeUpRow:
    name: str
    count: int
    share: float
    found: bool = True
    extra: float | None = None


FIRST, SECOND = MadeUpRow("a, b", 3, 0.1), MadeUpRow("c", -1, 1e-9, False, 2.5)


def test_rows_come_back_as_they_were_and_new_ones_are_added(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    assert read_rows(path, MadeUpRow) == []
    append_rows(path, [FIRST])
    append_rows(path, [SECOND])
    assert read_rows(path, MadeUpRow) == [FIRST, SECOND]
    write_rows(path, [SECOND])
    assert read_rows(path, MadeUpRow) == [SECOND]


def test_the_machine_is_written_and_left_out_when_rows_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    write_rows(path, [FIRST], machine=True)
    append_rows(path, [SECOND], machine=True)
    assert {"processor", "cores", "threads", "torch", "commit"} <= read_table(path)[1].keys()
    assert read_rows(path, MadeUpRow) == [FIRST, SECOND]


def test_a_study_measures_what_its_file_lacks_and_keeps_what_it_had_when_cut_short(tmp_path):
    path, asked = tmp_path / "rows.csv", []

    def measure(name: str, count: int) -> MadeUpRow:
        asked.append((name, count))
        if count == 2:
            raise KeyboardInterrupt
        return MadeUpRow(name, count, 0.5)

    with pytest.raises(KeyboardInterrupt):
        fill(path, MadeUpRow, [("a", 0), ("a", 2), ("a", 1)], measure)
    assert [row.count for row in fill(path, MadeUpRow, [("a", 0), ("a", 1)], measure)] == [0, 1]
    assert asked == [("a", 0), ("a", 2), ("a", 1)]
