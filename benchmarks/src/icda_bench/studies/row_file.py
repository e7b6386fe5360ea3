"""A CSV file of dataclass rows that grows as they come; a study that is begun again goes on where it stopped."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

Row = TypeVar("Row")


def read_row_file(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file; none if it is not there. Fields are int, float or str, as the dataclass says."""
    if not path.exists():
        return []
    types = {item.name: {"int": int, "float": float}.get(str(item.type), str) for item in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="") as file:
        return [kind(**{name: types[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def append_rows(path: Path, kind: type[Row], rows: Iterable[Row]) -> None:
    """Write each row as soon as it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(kind)], lineterminator="\n")  # type: ignore[arg-type]
        if is_new:
            writer.writeheader()
        for row in rows:
            found: dict[str, Any] = asdict(row)  # type: ignore[call-overload]
            writer.writerow(found)
            file.flush()
