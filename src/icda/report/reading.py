"""Results and explanations from where runs left them: folders, result.json files, ledgers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from icda.errors import InputError, MissingFileError
from icda.metrics.registry import OWN_METRICS
from icda.report.results import Explanations
from icda.report.tables import label_methods
from icda.results import RunResult, read_json
from icda.results.files import CONFIG, EXPLANATIONS, RESULT
from icda.results.ledger import read_rows

CONFIGURED = ("model", "epochs", "options", "attributes", "tier")  # columns of a ledger that a run has in its config


class FoundRun(NamedTuple):
    """A result, its explanations if there are any, and the folder it comes from if it comes from one."""

    result: RunResult
    explanations: Explanations | None = None
    folder: Path | None = None


def read_runs(paths: Sequence[Path]) -> list[FoundRun]:
    """All runs that the paths name, in their order; a folder without a result stands for the runs below it.

    Runs that are not finished are left out (`find_unfinished` names them); there must be one that is. Where runs of a
    method on a task differ in more than their seed, their method says in what.
    """
    begun = find_unfinished(paths)
    runs = [run for path in paths if path not in begun for run in read_path(path)]
    if not runs:
        raise MissingFileError(f"{begun[0]} holds no {RESULT}: the run there is not finished, or it diverged.")
    named = zip(runs, label_methods([run.result for run in runs]), strict=True)
    return [run._replace(result=replace(run.result, method=method)) for run, method in named]


def read_path(path: Path) -> list[FoundRun]:
    """The run of a folder or a result.json, the runs below a folder, or the rows of a ledger."""
    if path.is_dir():
        folders = [path] if (path / RESULT).is_file() else sorted(file.parent for file in path.rglob(RESULT))
        if not folders:
            raise MissingFileError(f"{path} holds no {RESULT}, nor does a folder below it: give a finished run.")
        return [read_folder(folder) for folder in folders]
    if not path.is_file():
        raise MissingFileError(f"{path} is not there: give the folder of a run, a {RESULT} or a ledger's CSV.")
    if path.suffix == ".json":
        return [read_folder(path.parent)] if path.name == RESULT else [FoundRun(RunResult.read(path))]
    if path.suffix == ".csv":
        return [FoundRun(result) for result in read_ledger_results(path)]
    raise InputError(f"{path} is neither the folder of a run, nor a {RESULT}, nor a ledger's CSV.")


def find_unfinished(paths: Sequence[Path]) -> list[Path]:
    """Folders, given or below a given one, in which a run was begun and has left no result: cut off, or diverged."""
    below = (file.parent for path in paths if path.is_dir() for file in path.rglob(CONFIG))
    return sorted({folder for folder in below if not (folder / RESULT).is_file()})


def read_folder(folder: Path) -> FoundRun:
    """The result of one run, with its explanations where it has them."""
    explained = folder / EXPLANATIONS
    return FoundRun(RunResult.read(folder / RESULT), read_json(explained) if explained.is_file() else None, folder)


def read_ledger_results(path: Path) -> list[RunResult]:
    """Rows of a ledger as results. What tells runs apart besides task, method and seed becomes part of their names."""
    rows = read_rows(path, "task", "method")
    if not rows:
        raise InputError(f"{path} has no rows: a report needs at least one run.")
    if not any(name in OWN_METRICS for name in rows[0]):
        raise InputError(f"{path} has no column of any figure such as accuracy: its columns are {', '.join(rows[0])}.")
    telling = [name for name in ("tier", "model") if len({row.get(name) or "" for row in rows}) > 1]
    return [_to_result(row, telling) for row in rows]


def _to_result(row: Mapping[str, str], telling: Sequence[str]) -> RunResult:
    task = ", ".join([row["task"], *(row[name] for name in telling if row.get(name))])
    options = row.get("options") or ""
    seed = row.get("seed") or ""
    return RunResult(
        task=task,
        method=f"{row['method']} ({options})" if options else row["method"],
        model=row.get("model") or None,
        seed=int(seed) if seed.isdigit() else None,
        split=row.get("split") or None,
        metrics={name: number for name in OWN_METRICS if (number := _number(row.get(name))) is not None},
        selection=row.get("selection") or None,
        config={name: row[name] for name in CONFIGURED if row.get(name)},
        data_hash=row.get("data_hash") or None,
        environment={name: row[name] for name in ("commit", "machine", "torch") if row.get(name)},
        seconds=_number(row.get("seconds")),
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
