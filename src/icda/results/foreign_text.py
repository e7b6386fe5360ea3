"""Text that somebody else wrote (class names, file names, cells of a table), on its way to a spreadsheet or a terminal."""

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

# What a spreadsheet takes for the begin of a formula; the wide forms are those of East Asian keyboards.
_FORMULA = re.compile(r"(?P<before>^|[;\t\n])(?P<space>\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, direction and format marks, half characters, line separators
_JOINERS = "\u200c\u200d"  # part of words and of emoji


def safe_cell(value: Any) -> Any:
    """A cell of a CSV file that no spreadsheet takes for a formula; numbers, and text without danger, stay as they are.

    An apostrophe goes before what would begin a formula, also after a separator inside the text: a spreadsheet set to
    another separator would cut the text there.

    >>> safe_cell("=1+1"), safe_cell("-0.5"), safe_cell(-0.5), safe_cell("seal;=A1"), safe_cell("well-known")
    ("'=1+1", '-0.5', -0.5, "seal;'=A1", 'well-known')
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    lines = re.sub(r"\r\n?", "\n", value)  # the csv module would leave a lone carriage return without quotes
    return _FORMULA.sub(r"\g<before>\g<space>'", lines)


def write_csv(file: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a header and rows to an open file (`newline=""`), each cell made safe for spreadsheets."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([safe_cell(column) for column in columns])
    writer.writerows([safe_cell(row[column]) for column in columns] for row in rows)


def printable(text: str, keep: str = "\n\t") -> str:
    """Text for a terminal: what would move its cursor, colour it or turn its direction is shown as an escape."""
    if text.isascii() and text.isprintable():
        return text
    seen = (char in keep + _JOINERS or unicodedata.category(char) not in _UNSEEN for char in text)
    escaped = (char.encode("unicode_escape", "backslashreplace").decode("ascii") for char in text)
    return "".join(char if is_seen else code for char, is_seen, code in zip(text, seen, escaped, strict=True))
