"""CSV files of rows, each row a dataclass or a mapping: everything that is measured outside the suites is kept so.

A study fills its file cell by cell (`fill`); a measurement of costs is shown and written at its end (`publish`).
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import yaml

from icda.results import write_atomically
from icda.training.environment import describe_environment
from icda_bench.markdown import columns_table

T = TypeVar("T")
PARSERS: dict[type, Callable[[str], Any]] = {int: int, float: float, bool: "True".__eq__}
COLUMNS: dict[str, dict[str, str]] = yaml.safe_load(files("icda_bench").joinpath("columns.yaml").read_text())


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """The rows of a file as dataclasses, an empty cell as None; columns that the dataclass has not are left out."""
    kinds = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(kind).items()}

    def parse(name: str, text: str) -> Any:
        return None if not text and NoneType in kinds[name] else PARSERS.get(kinds[name][0], str)(text)

    return [kind(**{name: parse(name, row[name]) for name in kinds if name in row}) for row in read_table(path)]


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


def fill(
    path: Path,
    kind: type[T],
    cells: Iterable[Sequence[Any]],
    measure: Callable[..., T | list[T]],
    *,
    machine: bool = False,
    is_stale: Callable[[T], object] = lambda row: False,
) -> list[T]:
    """Append `measure(*cell)`, a row or several, for each cell that the file has no row of.

    A study begun again goes on where it stopped. A cell is the first fields of its rows; stale rows do not count.
    """
    known = [astuple(row) for row in read_rows(path, kind) if not is_stale(row)]  # type: ignore[call-overload]
    for cell in cells:
        if not any(row[: len(cell)] == tuple(cell) for row in known):
            found = measure(*cell)
            append_rows(path, found if isinstance(found, list) else [found], machine=machine)
            print("measured:", *cell)
    return read_rows(path, kind)


def publish(name: str, rows: Sequence[Any], out: Path | None) -> None:
    """Print rows as the table that the pages make of them, and write them with the machine they were measured on."""
    cells = [{key: "" if value is None else str(value) for key, value in asdict(row).items()} for row in rows]
    print(columns_table(cells, COLUMNS[name]))
    if out is not None:
        write_rows(out, rows, machine=True)
        print(f"Written to {out}")


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
