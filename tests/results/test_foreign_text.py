"""Text from strangers, in CSV files and on terminals."""

import csv
import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icda.results.foreign_text import printable, safe_cell, write_csv

STARTS = "=+-@\uff1d\uff0b\uff0d\uff20"


def cells_as_read_with(separator, text):
    """Cells as a spreadsheet sees them that cuts at this separator, whatever the file was written with."""
    return [cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) for cell in row]


def is_formula(cell):
    """A cell a spreadsheet computes: by its first character, if it is no plain number."""
    text = cell.strip()
    if not text or text[0] not in STARTS:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("start", [*STARTS, "\t=", "\r=", " ="])
def test_a_cell_that_begins_a_formula_becomes_text(start):
    assert is_formula(start + "SUM(A1)")
    assert not is_formula(safe_cell(start + "SUM(A1)"))


@pytest.mark.parametrize("number", ["-1", "+2.5", "-1e-3", "-.5", "3", "1E+5"])
def test_a_number_stays_as_it_is(number):
    assert safe_cell(number) == number


@given(st.lists(st.text(alphabet=st.sampled_from("ab=+-@;,\t\n\r\"'1 ")), min_size=1, max_size=4))
def test_no_spreadsheet_finds_a_formula_in_a_file(values):
    file = io.StringIO()
    columns = [f"c{place}" for place in range(len(values))]
    write_csv(file, columns, [dict(zip(columns, values, strict=True))])
    for cell in cells_as_read_with(",", file.getvalue()):
        assert not is_formula(cell)


@given(st.text(alphabet=st.sampled_from("ab=@;")))
def test_a_text_is_only_lengthened_by_apostrophes(value):
    assert safe_cell(value).replace("'", "") == value


def test_a_file_cut_at_semicolons_has_no_formula_either():
    file = io.StringIO()
    write_csv(file, ["name", "label"], [{"name": 'seal;=HYPERLINK("x")', "label": "a\n=1+1"}])
    assert not any(is_formula(cell) for cell in cells_as_read_with(";", file.getvalue()))


@given(st.text())
def test_no_control_character_is_left_for_a_terminal(text):
    left = {unicodedata.category(char) for char in printable(text) if char not in "\n\t\u200c\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_readable_text_stays_as_it_is():
    for text in ("cat", "Straße\nnaïve\t猫", "👩\u200d🔬"):
        assert printable(text) == text
    assert printable("cat\x1b[2J\u202edog") == r"cat\x1b[2J\u202edog"
