"""The study of long trainings with signed Meta-ICDA."""

from __future__ import annotations

from pathlib import Path

from icda.methods.create import method_class, option_names
from icda_bench.studies.long_training import FORMS, Arguments, LongTrainingRow, long_training_table, main
from icda_bench.studies.row_file import read_row_file


def test_rows_are_kept_and_nothing_is_run_twice(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    options = Arguments(out, seeds=(0,), epochs=(2,), forms=("memory, beta 10", "memory, beta 5, withdrawal 3"))
    main(options)
    rows = read_row_file(out, LongTrainingRow)
    assert [row.form for row in rows] == list(options.forms)
    assert all(0 < row.last < 1 and row.selected_epoch in (0, 1) for row in rows)
    assert all(row.selected == row.last for row in rows if row.selected_epoch == 1)
    main(options)
    assert read_row_file(out, LongTrainingRow) == rows


def test_every_form_names_options_of_the_method() -> None:
    known = option_names(method_class("meta_icda_signed"))
    assert all(option in known for options in FORMS.values() for option in options)


def test_the_table_keeps_lengths_and_forms_apart() -> None:
    rows = [LongTrainingRow("memory, beta 5", k, n, 0.8, 0.9, 7, 0.95) for k in range(2) for n in (30, 120)]
    lines = long_training_table(rows).splitlines()[2:]
    assert [line.split("|")[2].strip() for line in lines] == ["30", "120"]
    assert "0, 1" in lines[0]
