"""Features and labels from the files people have them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from icda.data.embedding.features import read_arrays
from icda.data.own.table import LABEL, CsvTable, read_table
from icda.errors import InputError, MissingFileError
from icda.registry import nearest

FEATURES = ("features", "feats", "embeddings", "X", "x")
LABELS = ("y", "labels", "label", "targets", "target")
NAMES = ("id", "ids", "names", "name", "path", "paths", "img_id")


@dataclass(frozen=True)
class AuditData:
    """What the audit is run on; names and class names are None where the file has none."""

    features: np.ndarray
    labels: np.ndarray
    names: np.ndarray | None = None
    class_names: np.ndarray | None = None


@dataclass(frozen=True)
class Wanted:
    """Which arrays or columns to take, as the user named them; None is guessed from common names."""

    features: str | None = None
    labels: str | None = None
    names: str | None = None
    where: tuple[str, ...] = ()


def read_audit_data(path: Path, wanted: Wanted) -> AuditData:
    """Read an .npz, a .csv, or an .npy whose labels stand in another .npy, and keep the rows asked for."""
    readers = {".npz": _from_npz, ".csv": _from_csv, ".npy": _from_npy}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} ends in {path.suffix!r}, wanted .npz, .csv or .npy.")
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes a features file.")
    return readers[path.suffix.lower()](path, wanted)


def _from_npz(path: Path, wanted: Wanted) -> AuditData:
    arrays = read_arrays(path)
    features = arrays[_pick(path, arrays, "features", wanted.features, FEATURES)]
    labels = arrays[_pick(path, arrays, "labels", wanted.labels, LABELS)]
    named = wanted.names is not None or any(name in arrays for name in NAMES)
    names = arrays[_pick(path, arrays, "names", wanted.names, NAMES)] if named else None
    class_names = arrays.get("class_names") if labels.ndim == 1 and labels.dtype.kind in "iu" else None
    rows = _rows(path, arrays, wanted.where, len(features))
    return _select(path, AuditData(features, labels, names, class_names), rows)


def _from_npy(path: Path, wanted: Wanted) -> AuditData:
    if wanted.labels is None or wanted.features is not None or wanted.names is not None:
        raise InputError(f"{path} holds one array: name the other file with --labels LABELS.npy, and nothing else.")
    if wanted.where:
        raise InputError("--where needs named arrays or columns: use an .npz or a .csv.")
    arrays = []
    for file in (path, Path(wanted.labels).expanduser()):
        if not file.is_file():
            raise MissingFileError(f"{file.absolute()} is not there.")
        try:
            arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
        except (ValueError, OSError, EOFError) as error:
            raise InputError(
                f"{file} is no .npy file of plain numbers or texts, or it is damaged ({error})."
            ) from error
    return AuditData(arrays[0], np.asarray(arrays[1]))


def _from_csv(path: Path, wanted: Wanted) -> AuditData:
    if wanted.features is not None:
        raise InputError(f"--features names an array of an .npz; of {path} all numeric columns are taken.")
    table = read_table(path)
    label = table.find("label", wanted.labels, LABEL)
    if label is None:
        raise InputError(f"{path} has no label column: name it with --label-column. It has {', '.join(table.columns)}.")
    named = table.find("name", wanted.names, NAMES)
    conditions = {condition.partition("=")[0] for condition in wanted.where}
    arrays = {name: np.array(cells) for name, cells in table.columns.items()}
    chosen = _rows(path, arrays, wanted.where, len(table.lines))
    rows = np.arange(len(table.lines)) if chosen is None else np.flatnonzero(chosen)
    columns, left_out = _numbers(table, rows, {label, named, *conditions})
    if not columns:
        raise InputError(f"{path} has no column of numbers beside {label!r}: left out {', '.join(left_out)}.")
    names = None if named is None else arrays[named][rows]
    return AuditData(np.stack(columns, 1), np.array(table.column(label))[rows], names)


def _numbers(table: CsvTable, rows: np.ndarray, skipped: set[str | None]) -> tuple[list[np.ndarray], list[str]]:
    """The columns of numbers in the chosen rows, and the names of the others.

    Where at least half of the cells that are filled hold numbers the column is taken to be a feature, and every cell has
    to hold one: to leave a feature out for one empty cell would change the audit without a word.
    """
    columns, left_out = [], []
    for name in table.columns:
        if name in skipped:
            continue
        cells = [table.columns[name][row] for row in rows]
        wrong = [place for place, cell in enumerate(cells) if not _is_number(cell)]
        if not wrong:
            columns.append(np.array(cells, dtype=np.float64))
        elif 2 * (len(cells) - len(wrong)) >= sum(bool(cell.strip()) for cell in cells) > 0:
            raise InputError(
                f"{table.path}: column {name!r} holds numbers, but {len(wrong)} of its {len(cells)} cells do not, the "
                f"first in line {table.lines[rows[wrong[0]]]}: {cells[wrong[0]]!r}. Fill them, or drop the column."
            )
        else:
            left_out.append(name)
    return columns, left_out


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pick(path: Path, arrays: Mapping[str, np.ndarray], role: str, given: str | None, usual: Iterable[str]) -> str:
    if given is not None:
        return given if given in arrays else _unknown(path, arrays, given, f"--{role}")
    found = next((name for name in usual if name in arrays), None)
    if found is None:
        raise InputError(f"{path} has no {role} by a usual name: name them with --{role}. It has {', '.join(arrays)}.")
    return found


def _rows(path: Path, arrays: Mapping[str, np.ndarray], where: Iterable[str], samples: int) -> np.ndarray | None:
    """The rows in which every named array has the wanted value, compared as text; None for all rows."""
    kept = None
    for condition in where:
        name, sign, value = condition.partition("=")
        if not sign:
            raise InputError(f"--where {condition} wants NAME=VALUE, such as split=train.")
        if name not in arrays:
            _unknown(path, arrays, name, "--where")
        if arrays[name].shape != (samples,):
            raise InputError(f"--where {condition}: {name} has shape {arrays[name].shape}, wanted ({samples},).")
        agreeing = arrays[name].astype(str) == value
        if not agreeing.any():
            values = np.unique(arrays[name].astype(str))
            shown = ", ".join(values[:10]) + (" ..." if len(values) > 10 else "")
            raise InputError(f"--where {condition} keeps no row of {path}: {name} has the values {shown}.")
        kept = agreeing if kept is None else kept & agreeing
    if kept is not None and not kept.any():
        raise InputError(f"--where {' --where '.join(where)} together keep no row of {path}.")
    return kept


def _select(path: Path, data: AuditData, rows: np.ndarray | None) -> AuditData:
    for role, array in (("labels", data.labels), ("names", data.names)):
        if array is not None and (array.ndim != 1 or len(array) != len(data.features)):
            raise InputError(
                f"{path}: {role} have shape {array.shape}, wanted ({len(data.features)},) as the features."
            )
    if rows is None:
        return data
    names = None if data.names is None else data.names[rows]
    return AuditData(data.features[rows], data.labels[rows], names, data.class_names)


def _unknown(path: Path, arrays: Mapping[str, np.ndarray], given: str, option: str) -> NoReturn:
    guess = nearest(given, arrays)
    hint = f"did you mean {guess!r}? " if guess else ""
    raise InputError(f"{path} has no {given!r} for {option}: {hint}It has {', '.join(arrays)}.")
