"""Rows in CSV files: they come back as they were, and a study goes on where it stopped."""

import pytest

from icda_bench.rows import append_rows, fill, read_table, write_rows

FIRST = {"name": "a, b", "count": 3, "share": 0.1, "extra": None}
SECOND = {"name": "c", "count": -1, "share": 1e-9, "extra": 2.5}


def as_text(row):
    return {name: "" if value is None else str(value) for name, value in row.items()}


def test_rows_come_back_as_they_were_and_new_ones_are_added(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    assert read_table(path) == []
    append_rows(path, [FIRST])
    append_rows(path, [dict(reversed(SECOND.items()))])  # columns stand where the header has them
    assert read_table(path) == [as_text(FIRST), as_text(SECOND)]
    with pytest.raises(ValueError, match="share_of_class"):
        append_rows(path, [{**FIRST, "share_of_class": 0.5}])
    write_rows(path, [SECOND])
    assert read_table(path) == [as_text(SECOND)]


def test_the_machine_is_written_with_every_row(tmp_path):
    path = tmp_path / "rows.csv"
    write_rows(path, [FIRST], machine=True)
    append_rows(path, [SECOND], machine=True)
    assert {*SECOND, "processor", "cores", "threads", "torch", "commit", "code"} == read_table(path)[1].keys()


def test_a_study_measures_what_its_file_lacks_and_keeps_what_it_had_when_cut_short(tmp_path):
    path, asked = tmp_path / "rows.csv", []

    def measure(name, share):
        asked.append((name, share))
        if share == 2.0:
            raise KeyboardInterrupt
        return [{"found": part} for part in ("x", "y")]

    with pytest.raises(KeyboardInterrupt):
        fill(path, ("name", "share"), [("a", 0.1), ("a", 2.0), ("a", 1)], measure)
    rows = fill(path, ("name", "share"), [("a", 0.1), ("a", 1)], measure)
    assert [(row["share"], row["found"]) for row in rows] == [("0.1", "x"), ("0.1", "y"), ("1", "x"), ("1", "y")]
    assert asked == [("a", 0.1), ("a", 2.0), ("a", 1)]
    fill(path, ("name", "share"), [("a", 1)], measure, is_stale=lambda row: row["found"] in "xy")
    assert asked[-1] == ("a", 1), "a stale row does not count"
