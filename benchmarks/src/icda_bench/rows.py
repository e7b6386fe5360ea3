"""CSV files of rows, each a mapping from columns to figures: everything that is measured outside the suites is kept so.

A study fills its file cell by cell (`fill`); a measurement of costs is shown and written at its end (`publish`).
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from icda.results import write_atomically
from icda.training.environment import describe_environment
from icda_bench.markdown import columns_table

Row = Mapping[str, Any]  # as measured; read from a file, every figure is text, and "" where there is none
COLUMNS: dict[str, dict[str, str]] = yaml.safe_load(files("icda_bench").joinpath("columns.yaml").read_text())


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text; none if it is not there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Iterable[Row], *, machine: bool = False) -> None:
    """Replace a file at once; `machine` adds what the rows were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _as_csv(rows, machine).encode())


def append_rows(path: Path, rows: Iterable[Row], *, machine: bool = False) -> None:
    """Add rows to a file, whose header says in which order their columns stand."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", newline="", encoding="utf-8") as file:
        file.seek(0)
        names = next(csv.reader(file), None)
        file.write(_as_csv(rows, machine, names))


def fill(
    path: Path,
    columns: Sequence[str],
    cells: Iterable[Sequence[Any]],
    measure: Callable[..., Row | list[Row]],
    *,
    machine: bool = False,
    is_stale: Callable[[Row], object] = lambda row: False,
) -> list[dict[str, str]]:
    """Append the figures of `measure(*cell)`, for one row or several, for each cell that the file has no row of.

    A study begun again goes on where it stopped. `columns` are those of a cell, the first of the file; stale rows do not
    count.
    """
    known = {tuple(row[name] for name in columns) for row in read_table(path) if not is_stale(row)}
    for cell in cells:
        if tuple(map(str, cell)) not in known:
            found = measure(*cell)
            place = dict(zip(columns, cell, strict=True))
            rows = found if isinstance(found, list) else [found]
            append_rows(path, [{**place, **row} for row in rows], machine=machine)
            print("measured:", *cell)
    return read_table(path)


def publish(table: str | Callable[[Any], str], rows: Sequence[Row], out: Path | None) -> None:
    """Print rows as the table that the pages make of them, and write them with the machine they were measured on.

    `table` makes it, or names one of `COLUMNS`.
    """
    cells = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    print(columns_table(cells, COLUMNS[table]) if isinstance(table, str) else table(cells))
    if out is not None:
        write_rows(out, rows, machine=True)
        print(f"Written to {out}")


def machine_columns() -> dict[str, Any]:
    environment = describe_environment()
    return {name: environment[name] for name in ("processor", "cores", "threads", "torch", "commit", "code")}


def _as_csv(rows: Iterable[Row], machine: bool, names: list[str] | None = None) -> str:
    added = machine_columns() if machine else {}
    flat = [{**row, **added} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, names or list(flat[0]), lineterminator="\n")
    if names is None:
        writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()
