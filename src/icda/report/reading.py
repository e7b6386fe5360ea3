"""Results and explanations from where runs left them: folders, result.json files, ledgers."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from icda.errors import InputError, MissingFileError
from icda.report.formatting import FIGURES
from icda.report.results import Result
from icda.report.runs import Explanations
from icda.report.tables import label_methods

RESULT = "result.json"
EXPLANATIONS = "explanations.json"
CONFIGURED = ("model", "epochs", "options", "attributes", "tier")  # columns of a ledger that a run has in its config


class Found(NamedTuple):
    """A result, its explanations if there are any, and the folder it comes from if it comes from one."""

    result: Result
    explanations: Explanations | None = None
    folder: Path | None = None


def read_runs(paths: Sequence[Path]) -> list[Found]:
    """All runs that the paths name, in their order; a folder without a result stands for the runs below it.

    Where runs of a method on a task differ in more than their seed, their method says in what.
    """
    runs = [found for path in paths for found in read_path(path)]
    named = zip(runs, label_methods([run.result for run in runs]), strict=True)
    return [run._replace(result={**run.result, "method": method}) for run, method in named]


def read_path(path: Path) -> list[Found]:
    """The run of a folder or a result.json, the runs below a folder, or the rows of a ledger."""
    if path.is_dir():
        folders = [path] if (path / RESULT).is_file() else sorted(file.parent for file in path.rglob(RESULT))
        if not folders:
            raise MissingFileError(f"{path} holds no {RESULT}, nor does a folder below it: give a finished run.")
        return [read_folder(folder) for folder in folders]
    if not path.is_file():
        raise MissingFileError(f"{path} is not there: give the folder of a run, a {RESULT} or a ledger's CSV.")
    if path.suffix == ".json":
        return [read_folder(path.parent)] if path.name == RESULT else [Found(_load(path))]
    if path.suffix == ".csv":
        return [Found(result) for result in read_ledger_results(path)]
    raise InputError(f"{path} is neither the folder of a run, nor a {RESULT}, nor a ledger's CSV.")


def read_folder(folder: Path) -> Found:
    """The result of one run, with its explanations where it has them."""
    explained = folder / EXPLANATIONS
    return Found(_load(folder / RESULT), _load(explained) if explained.is_file() else None, folder)


def read_ledger_results(path: Path) -> list[dict[str, Any]]:
    """Rows of a ledger as results. What tells runs apart besides task, method and seed becomes part of their names."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise InputError(f"{path} has no rows: a report needs at least one run.")
    missing = [name for name in ("task", "method") if name not in rows[0]]
    if missing or not any(name in FIGURES for name in rows[0]):
        wanted = " and ".join(missing) or "any figure such as accuracy"
        raise InputError(
            f"{path} is no ledger of runs, it has no column {wanted}: its columns are {', '.join(rows[0])}."
        )
    telling = [name for name in ("tier", "model") if len({row.get(name) or "" for row in rows}) > 1]
    return [_to_result(row, telling) for row in rows]


def _to_result(row: Mapping[str, str], telling: Sequence[str]) -> dict[str, Any]:
    task = ", ".join([row["task"], *(row[name] for name in telling if row.get(name))])
    options = row.get("options") or ""
    seed = row.get("seed") or ""
    result: dict[str, Any] = {
        "task": task,
        "method": f"{row['method']} ({options})" if options else row["method"],
        "seed": int(seed) if seed.isdigit() else seed or None,
        "metrics": {name: number for name in FIGURES if (number := _number(row.get(name))) is not None},
        "config": {name: row[name] for name in CONFIGURED if row.get(name)},
        "environment": {name: row[name] for name in ("commit", "machine", "torch") if row.get(name)},
        "seconds": _number(row.get("seconds")),
    }
    return result | {name: row[name] for name in ("split", "selection", "model", "data_hash") if row.get(name)}


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON ({error}): was the run cut off while writing?") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__}, not what a run writes.")
    return found
