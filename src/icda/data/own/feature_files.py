"""Features and labels from the files people have them in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from icda.data.embedding.features import member_names, read_arrays, why
from icda.data.own.parquet import ParquetTable, numeric_columns
from icda.data.own.table import GROUP, LABEL, NAMED_COLUMNS, SPLIT, CsvTable, read_table
from icda.errors import InputError, MissingFileError
from icda.extras import require
from icda.registry import did_you_mean

FEATURES = ("features", "feats", "embeddings", "X", "x")
LABELS = ("y", "labels", "label", "targets", "target")
EMBEDDING = (
    "encoder",
    "encoder_version",
    "image_size",
    "source",
    "source_column",
)  # what `icda embed` leaves beside the arrays
NAMES = ("id", "ids", "names", "name", "path", "paths", "img_id")


@dataclass(frozen=True)
class LabelledFeatures:
    """What a file holds, one entry per sample; what it does not say is None.

    `columns` are the names of the features, where they stand in columns of their own; `embedding` is what else
    `icda embed` wrote: the encoder and its version, the size of images, and where the inputs lie.
    """

    features: np.ndarray
    labels: np.ndarray
    names: np.ndarray | None = None
    class_names: np.ndarray | None = None
    notes: tuple[str, ...] = ()  # what was taken and what was left out, for the user
    columns: tuple[str, ...] | None = None
    splits: np.ndarray | None = None
    groups: np.ndarray | None = None
    embedding: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """Which arrays or columns to take, as the user named them; None is guessed from common names.

    `columns` are those that a model was fitted to: a table that has them is read by them, and nothing is guessed.
    """

    features: str | None = None
    labels: str | None = None
    names: str | None = None
    where: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    groups: str | None = None  # never guessed


def read_feature_file(path: Path, wanted: Wanted) -> LabelledFeatures:
    """Read an .npz, a .csv, or an .npy whose labels stand in another .npy, and keep the rows asked for."""
    readers = {".npz": _from_npz, ".csv": _from_csv, ".npy": _from_npy, ".parquet": _from_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} ends in {path.suffix!r}, expected .npz, .csv, .parquet or .npy.")
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes a features file.")
    return readers[path.suffix.lower()](path, wanted)


def _from_npz(path: Path, asked: Wanted) -> LabelledFeatures:
    members = member_names(path)  # only what is needed is read: the rest may be large
    chosen = {
        "features": _pick(path, members, "features", asked.features, FEATURES),
        "labels": _pick(path, members, "labels", asked.labels, LABELS),
    }
    if asked.names is not None or any(name in members for name in NAMES):
        chosen["names"] = _pick(path, members, "names", asked.names, NAMES)
    if asked.groups is not None:
        chosen["groups"] = _pick(path, members, "groups", asked.groups, ())
    conditions = [condition.partition("=")[0] for condition in asked.where]
    arrays = read_arrays(path, [*chosen.values(), *conditions, *SPLIT, *EMBEDDING, "class_names"])
    features, labels = arrays[chosen["features"]], arrays[chosen["labels"]]
    names = arrays[chosen["names"]] if "names" in chosen else None
    class_names = arrays.get("class_names") if labels.ndim == 1 and labels.dtype.kind in "iu" else None
    rows = _rows(path, arrays, members, asked.where, len(features))
    embedding = {name: str(arrays[name]) for name in EMBEDDING if name in arrays and arrays[name].ndim == 0}
    splits = next((arrays[name] for name in SPLIT if name in arrays and arrays[name].shape == labels.shape), None)
    groups = arrays[chosen["groups"]] if "groups" in chosen else None
    found = LabelledFeatures(features, labels, names, class_names, splits=splits, groups=groups, embedding=embedding)
    return _select(path, found, rows)


def _from_npy(path: Path, asked: Wanted) -> LabelledFeatures:
    if asked.labels is None or asked.features is not None or asked.names is not None:
        raise InputError(f"{path} holds one array: name the other file with --labels LABELS.npy, and nothing else.")
    if asked.groups is not None:
        raise InputError(f"--groups needs named arrays or columns, and {path} holds one: use an .npz or a .csv.")
    if asked.where:
        raise InputError("--where needs named arrays or columns: use an .npz or a .csv.")
    return LabelledFeatures(map_array(path), np.asarray(map_array(Path(asked.labels).expanduser())))


def map_array(file: Path) -> np.ndarray:
    """The array of an .npy file, which stays on disk until it is used."""
    if not file.is_file():
        raise MissingFileError(f"{file.absolute()} is not there.")
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(
            f"{file} is no .npy file of plain numbers or texts, or it is damaged ({why(error)})."
        ) from error


def _from_parquet(path: Path, asked: Wanted) -> LabelledFeatures:
    """Like a CSV, with the types that the file gives; `--features` names a column of lists or the beginning of names."""
    if asked.where:
        raise InputError("--where reads .npz and .csv files: filter a Parquet file before the audit.")
    parquet = require("pyarrow.parquet", "parquet", "Parquet files")
    schema = parquet.read_schema(path)
    label = _pick(path, schema.names, "labels", asked.labels, [*LABELS, *LABEL])
    named = asked.names or next((name for name in NAMES if name in schema.names), None)
    group = None if asked.groups is None else _pick(path, schema.names, "groups", asked.groups, ())
    chosen: str | list[str] | None = asked.features
    answers: list[str] = []
    own = asked.columns is not None and all(name in schema.names for name in asked.columns)
    if own:
        chosen = list(asked.columns or ())
        named = None if named in chosen else named
    elif chosen is None:
        answers = [name for name in _answers(schema.names, label) if name != group]
        chosen = features_column(schema) or [
            name for name in numeric_columns(schema) if name not in (label, named, group, *answers)
        ]
    if not chosen:
        raise InputError(f"{path} has no column of numbers beside {label!r}: name the features with --features.")
    table = ParquetTable(path, chosen, label, groups=named)
    parts = list(table.batches(2**14))
    names = None if named is None else np.concatenate([np.asarray(part.groups, dtype=object) for part in parts])
    values = np.concatenate([part.features for part in parts])
    guessed = asked.features is None and not own and not table.is_list  # what the user named is taken as named
    indices = [name for k, name in enumerate(table.features) if _is_index(name, values[:, k])] if guessed else []
    kept = [k for k, name in enumerate(table.features) if name not in indices]
    if not kept:
        raise InputError(f"{path} has no features: {_listed(indices)} only number the rows.")
    notes = _notes([table.features[k] for k in kept], indices, answers)
    labels = np.concatenate([part.targets for part in parts])
    columns = tuple(table.features) if table.is_list else tuple(np.array(table.features, dtype=object)[kept])
    features = values if table.is_list else values[:, kept]
    split = next((name for name in SPLIT if name in schema.names), None)

    def read(name: str | None) -> np.ndarray | None:
        return None if name is None else parquet.read_table(path, columns=[name])[name].to_numpy()

    return LabelledFeatures(
        features, labels, names, notes=notes, columns=columns, splits=read(split), groups=read(group)
    )


def features_column(schema: Any) -> str | None:
    """The column of lists that is called as features usually are; one number called x is a column among others."""
    kinds: Any = require("pyarrow.types", "parquet", "Parquet files")
    is_list = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    lists = {field.name for field in schema if any(fits(field.type) for fits in is_list)}
    return next((name for name in FEATURES if name in lists), None)


def _from_csv(path: Path, asked: Wanted) -> LabelledFeatures:
    if asked.features is not None:
        raise InputError(f"--features names an array of an .npz; of {path} all numeric columns are taken.")
    table = read_table(path)
    label = table.find("label", asked.labels, LABEL)
    if label is None:
        raise table.missing(["label"], LABEL)
    named = table.find("name", asked.names, NAMES)
    group = table.find("group", asked.groups, ())
    conditions = {condition.partition("=")[0] for condition in asked.where}
    # As objects: one long text would make a NumPy text column as wide for every row.
    arrays = {name: np.array(table.columns[name], dtype=object) for name in conditions if name in table.columns}
    chosen = _rows(path, arrays, table.columns, asked.where, len(table.lines))
    rows = np.arange(len(table.lines)) if chosen is None else np.flatnonzero(chosen)
    indices: list[str] = []
    answers: list[str] = []
    skipped: set[str | None] = {*table.columns}
    if asked.columns is not None:
        skipped -= {*asked.columns}
    else:
        indices = [name for name, cells in table.columns.items() if name != named and _is_index_column(name, cells)]
        answers = [name for name in _answers(table.columns, label) if name != group]
        skipped = {label, named, group, *conditions, *indices, *answers}
    columns, left_out = _numbers(table, rows, skipped)
    if not columns:
        raise InputError(f"{path} has no column of numbers beside {label!r}: left out {', '.join(left_out + indices)}.")
    names = None if named is None else np.array(table.columns[named], dtype=object)[rows]
    notes = _notes(list(columns), indices, answers, left_out)
    features = np.stack(list(columns.values()), 1)
    split = table.find("split", None, SPLIT)
    splits = None if split is None or split in conditions else np.array(table.columns[split], dtype=object)[rows]
    labels = np.array(table.names(label))[rows]
    groups = None if group is None else np.array(table.names(group))[rows]
    return LabelledFeatures(features, labels, names, notes=notes, columns=tuple(columns), splits=splits, groups=groups)


def _notes(taken: list[str], indices: list[str], answers: list[str], words: Sequence[str] = ()) -> tuple[str, ...]:
    """What was taken for features, and what was left out and why."""
    reasons = ("they only number the rows", "their names say label, group or split", "they hold no numbers")
    left = zip(reasons, (indices, answers, words), strict=True)
    said = [f"Left out, since {reason}: {_listed(list(names))}." for reason, names in left if names]
    return (f"Features: {_listed(taken)}.", *said)


def _is_index(name: str, values: np.ndarray) -> bool:
    """Whether a column only numbers the rows: consecutive whole numbers in any order, or a name that pandas gives.

    Rows that were once sorted by class would give the label away.

    >>> _is_index("Unnamed: 0", np.array([3.0, 1.0])), _is_index("row", np.array([8.0, 7.0, 9.0]))
    (True, True)
    >>> _is_index("age", np.array([7.0, 8.0, 10.0]))
    False
    """
    if not name or name.lower().startswith(("unnamed", "__index_level_")):
        return True
    if len(values) < 3 or not np.isfinite(values).all():
        return False
    return bool((np.diff(np.sort(values)) == 1).all()) and float(values[0]).is_integer()


def _is_index_column(name: str, cells: Sequence[str]) -> bool:
    """The same for the cells of a whole column, before rows are chosen."""
    if not all(map(_is_number, cells)):
        return False
    return _is_index(name, np.array(cells, dtype=np.float64))


def _answers(names: Collection[str], label: str) -> list[str]:
    """Other columns that by their names hold a label, a group or a split: a head would read the answer off them."""
    usual = {*LABELS, *LABEL, *GROUP, *SPLIT, "y_code", "group_code", "class_name", "class_names"}
    return [name for name in names if name != label and name.lower() in usual]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_COLUMNS} more" if len(names) > NAMED_COLUMNS else ""
    return f"{', '.join(name or '(no name)' for name in names[:NAMED_COLUMNS])}{more}"


def _numbers(table: CsvTable, rows: np.ndarray, skipped: set[str | None]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of numbers in the chosen rows, and the names of the others.

    Where at least half of the cells that are filled hold numbers the column is taken to be a feature, and every cell has
    to hold one: to leave a feature out for one empty cell would change the audit without a word.
    """
    columns: dict[str, np.ndarray] = {}
    left_out, holes = [], []
    for name in table.columns:
        if name in skipped:
            continue
        cells = [table.columns[name][row] for row in rows]
        wrong = [place for place, cell in enumerate(cells) if not _is_number(cell)]
        if not wrong:
            columns[name] = np.array(cells, dtype=np.float64)
        elif 2 * (len(cells) - len(wrong)) >= sum(bool(cell.strip()) for cell in cells) > 0:
            holes.append((name, len(wrong), table.lines[rows[wrong[0]]], cells[wrong[0]]))
        else:
            left_out.append(name)
    if holes:
        raise InputError(f"{table.path}: {_hole_sentence(holes, len(rows))}")
    return columns, left_out


def _hole_sentence(holes: Sequence[tuple[str, int, int, str]], num_rows: int) -> str:
    """All columns of numbers with cells that hold none, so that they can be repaired at once."""
    if len(holes) == 1:
        name, wrong, line, cell = holes[0]
        return (
            f"column {name!r} holds numbers, but {wrong} of its {num_rows} cells do not, the first in line {line}: "
            f"{cell!r}. Fill them, or drop the column."
        )
    listed = "; ".join(
        f"{name!r} in {wrong} of {num_rows} (first in line {line}: {cell!r})"
        for name, wrong, line, cell in holes[:NAMED_COLUMNS]
    )
    more = f"; and {len(holes) - NAMED_COLUMNS} more columns" if len(holes) > NAMED_COLUMNS else ""
    return f"{len(holes)} columns of numbers have cells without one: {listed}{more}. Fill them, or drop the columns."


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pick(path: Path, arrays: Collection[str], role: str, asked: str | None, usual: Iterable[str]) -> str:
    if asked is not None:
        return asked if asked in arrays else _unknown(path, arrays, asked, f"--{role}")
    usual_name = next((name for name in usual if name in arrays), None)
    if usual_name is None:
        raise InputError(f"{path} has no {role} by a usual name: name them with --{role}. It has {', '.join(arrays)}.")
    return usual_name


def _rows(
    path: Path, arrays: Mapping[str, np.ndarray], known: Collection[str], where: Sequence[str], samples: int
) -> np.ndarray | None:
    """The rows in which every named array has the value asked for, compared as text; None for all rows."""
    kept = None
    for condition in where:
        name, sign, value = condition.partition("=")
        if not sign:
            raise InputError(f"--where {condition} must be NAME=VALUE, such as split=train.")
        if name not in arrays:
            _unknown(path, known, name, "--where")
        if arrays[name].shape != (samples,):
            raise InputError(f"--where {condition}: {name} has shape {arrays[name].shape}, expected ({samples},).")
        agreeing = arrays[name].astype(str) == value
        if not agreeing.any():
            values = np.unique(arrays[name].astype(str))
            shown = ", ".join(values[:10]) + (" ..." if len(values) > 10 else "")
            raise InputError(f"--where {condition} keeps no row of {path}: {name} has the values {shown}.")
        kept = agreeing if kept is None else kept & agreeing
    if kept is not None and not kept.any():
        raise InputError(f"--where {' --where '.join(where)} together keep no row of {path}.")
    return kept


def _select(path: Path, data: LabelledFeatures, rows: np.ndarray | None) -> LabelledFeatures:
    for role, array in (("labels", data.labels), ("names", data.names), ("groups", data.groups)):
        if array is not None and (array.ndim != 1 or len(array) != len(data.features)):
            raise InputError(
                f"{path}: {role} have shape {array.shape}, expected ({len(data.features)},) as the features."
            )
    if rows is None:
        return data
    names, splits, groups = (None if part is None else part[rows] for part in (data.names, data.splits, data.groups))
    chosen = replace(data, features=data.features[rows], labels=data.labels[rows])
    return replace(chosen, names=names, splits=splits, groups=groups)


def _unknown(path: Path, arrays: Collection[str], name: str, option: str) -> NoReturn:
    hint = did_you_mean(name, arrays)
    raise InputError(f"{path} has no {name!r} for {option}: {hint}It has {', '.join(arrays)}.")
