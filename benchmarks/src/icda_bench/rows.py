"""CSV files of rows, each row a dataclass or a mapping: everything that is measured outside the suites is kept so."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any, TypeVar

from icda.results import write_atomically
from icda.training.environment import describe_environment

T = TypeVar("T")
PARSERS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": "True".__eq__}


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """The rows of a file as dataclasses, an empty cell as None; columns that the dataclass has not are left out."""
    types = {item.name: str(item.type).split(" | ")[0] for item in fields(kind)}  # type: ignore[arg-type]
    optional = {item.name for item in fields(kind) if "None" in str(item.type)}  # type: ignore[arg-type]

    def parse(name: str, text: str) -> Any:
        return None if not text and name in optional else PARSERS.get(types[name], str)(text)

    return [kind(**{name: parse(name, row[name]) for name in types if name in row}) for row in read_table(path)]


def write_rows(path: Path, rows: Iterable[Any], *, machine: bool = False) -> None:
    """Replace a file at once; `machine` adds what the rows were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _as_csv(rows, machine, header=True).encode())


def append_rows(path: Path, rows: Iterable[Any], *, machine: bool = False) -> None:
    """Add rows to a file, which begins with its header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _as_csv(rows, machine, header=not path.exists())
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(text)


def fill(path: Path, kind: type[T], cells: Iterable[Sequence[Any]], measure: Callable[..., T]) -> list[T]:
    """Append `measure(*cell)` for each cell that the file has no row of: a study begun again goes on where it stopped.

    A cell is the first fields of its row.
    """
    known = [astuple(row) for row in read_rows(path, kind)]  # type: ignore[call-overload]
    for cell in cells:
        if not any(row[: len(cell)] == tuple(cell) for row in known):
            append_rows(path, [measure(*cell)])
    return read_rows(path, kind)


def machine_columns() -> dict[str, Any]:
    environment = describe_environment()
    return {name: environment[name] for name in ("processor", "cores", "threads", "torch", "commit")}


def _as_csv(rows: Iterable[Any], machine: bool, header: bool) -> str:
    added = machine_columns() if machine else {}
    flat = [{**(row if isinstance(row, Mapping) else asdict(row)), **added} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()
