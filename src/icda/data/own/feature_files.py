"""Features and labels from the files people have them in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from icda.data.embedding.features import member_names, read_arrays, why
from icda.data.embedding.samples import Columns
from icda.data.missing import plain_names
from icda.data.own.encoding import (
    Cells,
    Plan,
    encode_table,
    encoding_notes,
    feature_names,
    parquet_cells,
    plan_columns,
    training_rows,
)
from icda.data.own.parquet import ParquetTable, numeric_columns, open_parquet, read_column
from icda.data.own.table import GROUP, LABEL, NAMED_COLUMNS, SPLIT, CsvTable, listed, read_table
from icda.errors import InputError, MissingFileError
from icda.extras import require
from icda.registry import did_you_mean

FEATURES = ("features", "feats", "embeddings", "X", "x")
LABELS = ("y", "labels", "label", "targets", "target")
# What `icda embed` leaves beside the arrays.
EMBEDDING = ("encoder", "encoder_version", "image_size", "source", "source_column", "source_sha256")
NAMES = ("id", "ids", "names", "name", "path", "paths", "img_id")
LEFT_OUT = ("they only number the rows", "their names say label, group or split", "they hold no numbers")


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
    array: str | None = None  # name of the features, where they are one array of several
    splits: np.ndarray | None = None
    groups: np.ndarray | None = None
    embedding: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None  # how words, dates and empty cells became numbers


def read_feature_file(path: Path, asked: Columns) -> LabelledFeatures:
    """Read an .npz, a .csv, or an .npy whose labels stand in another .npy, and keep the rows asked for.

    Groups are taken where they are named, and never guessed.
    """
    readers = {".npz": _from_npz, ".csv": _from_csv, ".npy": _from_npy, ".parquet": _from_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path} ends in {path.suffix!r}, expected .npz, .csv, .parquet or .npy.")
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes a features file.")
    found = readers[path.suffix.lower()](path, asked)
    groups = None if found.groups is None else plain_names(found.groups)
    return replace(found, labels=plain_names(found.labels), groups=groups)


def column_names(path: Path) -> list[str]:
    """The names of a file's arrays or columns."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return list(member_names(path))
    if suffix == ".parquet":
        return list(require("pyarrow.parquet", "parquet", "Parquet files").read_schema(path).names)
    return [] if suffix == ".npy" else list(read_table(path).columns)


def _from_npz(path: Path, asked: Columns) -> LabelledFeatures:
    members = member_names(path)  # only what is needed is read: the rest may be large
    chosen = {
        "features": features_array(path, members, asked.array)
        if asked.array is not None
        else _pick(path, members, "features", asked.features, FEATURES),
        "labels": _pick(path, members, "labels", asked.labels, LABELS),
        "names": _pick_any(path, members, "names", asked.names, NAMES),
        "groups": _pick_any(path, members, "groups", asked.groups, ()),
        "splits": _pick_any(path, members, "splits", asked.splits, (*SPLIT, "splits")),
    }
    conditions = [condition.partition("=")[0] for condition in asked.where]
    arrays = read_arrays(path, [*filter(None, chosen.values()), *conditions, *EMBEDDING, "class_names"])
    known: dict[str, Any] = {role: arrays[name] for role, name in chosen.items() if name is not None}
    if known.get("splits", np.zeros(1)).ndim == 0:
        del known["splits"]
    features, labels = known["features"], known["labels"]
    for role, array in known.items():
        if role != "features" and (array.ndim != 1 or len(array) != len(features)):
            raise InputError(
                f"{path}: {role} ({chosen[role]}) need one value per row, {len(features)} in all, got {array.shape}."
            )
    if asked.where:
        rows = _rows(path, arrays, members, asked.where, len(features))
        known = {role: array[rows] for role, array in known.items()}
    embedding = {name: str(arrays[name]) for name in EMBEDDING if name in arrays and arrays[name].ndim == 0}
    class_names = arrays.get("class_names") if labels.dtype.kind in "iu" else None
    return LabelledFeatures(**known, class_names=class_names, embedding=embedding, array=chosen["features"])


def features_array(path: Path, members: Collection[str], fitted: str | None) -> str:
    """The array that a model was fitted to; one called as usual may be called otherwise as usual in another file."""
    if fitted is not None and fitted in members:
        return fitted
    found = next((name for name in FEATURES if name in members), None)
    if found is None or (fitted is not None and fitted not in FEATURES):
        wanted = "of features by a usual name" if fitted is None else f"{fitted!r}, which the model was fitted to"
        raise InputError(f"{path} has no array {wanted}: name another with --column; it has {', '.join(members)}.")
    return found


def _from_npy(path: Path, asked: Columns) -> LabelledFeatures:
    if asked.labels is None or asked.features or asked.names or asked.groups or asked.where:
        raise InputError(
            f"{path} holds one array: name the other file with --labels LABELS.npy, and nothing else; --groups, --names "
            "and --where need the named arrays of an .npz or the columns of a .csv."
        )
    return LabelledFeatures(map_array(path), np.asarray(map_array(Path(asked.labels).expanduser())))


def map_array(file: Path) -> np.ndarray:
    """The array of an .npy file, which stays on disk until it is used."""
    if not file.is_file():
        raise MissingFileError(f"{file.absolute()} is not there.")
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{file} is no .npy file of numbers or texts, or it is damaged ({why(error)}).") from error


def _from_parquet(path: Path, asked: Columns) -> LabelledFeatures:
    """Like a CSV, with the types that the file gives; `--features` names a column of lists or the beginning of names."""
    if asked.where:
        raise InputError("--where reads .npz and .csv files: filter a Parquet file before the audit.")
    with open_parquet(path) as file:
        schema = file.schema_arrow
    label = _pick(path, schema.names, "labels", asked.labels, [*LABELS, *LABEL])
    named = _pick_any(path, schema.names, "names", asked.names, NAMES)
    group = _pick_any(path, schema.names, "groups", asked.groups, ())
    split = next((name for name in SPLIT if name in schema.names), None)
    if asked.plan is not None or (asked.encode and asked.features is None and _has_more_than_numbers(path, schema)):
        roles = {"labels": label, "names": named, "groups": group, "splits": split}
        return _mixed_parquet(path, schema.names, roles, asked)
    chosen: str | list[str] | None = asked.features
    answers: list[str] = []
    own = asked.fitted is not None and all(name in schema.names for name in asked.fitted)
    if own:
        chosen = list(asked.fitted or ())
        named = None if named in chosen else named
    elif chosen is None:
        answers = [name for name in _answers(schema.names, label) if name != group]
        taken = (label, named, group, *answers)
        chosen = features_column(schema) or [name for name in numeric_columns(schema) if name not in taken]
    if not chosen:
        raise InputError(f"{path} has no column of numbers beside {label!r}: name the features with --features.")
    table = ParquetTable(path, chosen, label, groups=named)
    features, labels, _, names = table.in_memory()
    guessed = asked.features is None and not own and not table.is_list  # what the user named is taken as named
    indices = [name for k, name in enumerate(table.features) if _is_index(name, features[:, k])] if guessed else []
    columns = [name for name in table.features if name not in indices]
    if not columns:
        raise InputError(f"{path} has no features: {listed(indices)} only number the rows.")
    if indices:
        features = features[:, [name not in indices for name in table.features]]

    def read(name: str | None) -> np.ndarray | None:
        return None if name is None else read_column(path, name).to_numpy()

    about: dict[str, Any] = {"notes": _notes(columns, indices, answers), "columns": tuple(columns)}
    return LabelledFeatures(features, labels, names, **about, splits=read(split), groups=read(group))


def _mixed_parquet(
    path: Path, names: Sequence[str], roles: Mapping[str, str | None], asked: Columns
) -> LabelledFeatures:
    """A Parquet file with words, truth values, dates or empty cells."""
    used = _used(path, names, {*roles.values(), *_answers(names, roles["labels"] or "")}, asked)
    known: dict[str, Any] = {
        role: None if name is None else np.array(read_column(path, name).to_pylist(), dtype=object)
        for role, name in roles.items()
    }
    known["labels"] = read_column(path, roles["labels"] or "").to_numpy()
    return replace(_encoded(parquet_cells(path, used), asked, known["splits"]), **known)


def features_column(schema: Any) -> str | None:
    """The column of lists that is called as features usually are; one number called x is a column among others."""
    kinds: Any = require("pyarrow.types", "parquet", "Parquet files")
    is_list = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    lists = {field.name for field in schema if any(fits(field.type) for fits in is_list)}
    return next((name for name in FEATURES if name in lists), None)


def _from_csv(path: Path, asked: Columns) -> LabelledFeatures:
    if asked.features is not None:
        raise InputError(f"--features names an array of an .npz; of {path} all numeric columns are taken.")
    table = read_table(path)
    label = table.require("label", asked.labels, LABEL)
    named, group = table.find("name", asked.names, NAMES), table.find("group", asked.groups, ())
    conditions = {condition.partition("=")[0] for condition in asked.where}
    # As objects: one long text would make a NumPy text column as wide for every row.
    arrays = {name: np.array(table.columns[name], dtype=object) for name in conditions if name in table.columns}
    rows = np.flatnonzero(_rows(path, arrays, table.columns, asked.where, len(table.lines)))
    indices: list[str] = []
    answers: list[str] = []
    if asked.fitted is not None:
        skipped: set[str | None] = {name for name in table.columns if name not in asked.fitted}
    else:
        whole = {name: cells for name, cells in table.columns.items() if name != named and all(map(_is_number, cells))}
        indices = [name for name, cells in whole.items() if _is_index(name, np.array(cells, dtype=np.float64))]
        answers = [name for name in _answers(table.columns, label) if name != group]
        skipped = {label, named, group, *conditions, *indices, *answers}
    split = table.find("split", None, SPLIT)
    split = None if split in conditions else split
    splits = None if split is None else np.array(table.columns[split], dtype=object)[rows]
    known: dict[str, Any] = {
        "labels": np.array(table.names(label))[rows],
        "names": None if named is None else np.array(table.columns[named], dtype=object)[rows],
        "groups": None if group is None else np.array(table.names(group, may_be_empty=True))[rows],
    }
    if asked.plan is not None or (asked.encode and asked.fitted is None):
        used = _used(path, table.columns, skipped, asked)
        cells = {name: [table.columns[name][row] for row in rows] for name in used}
        if asked.plan is not None or not all(_is_number(cell) for column in cells.values() for cell in column):
            return replace(_encoded(cells, asked, splits, indices, answers), **known)
    columns, words = _numbers(table, rows, skipped)
    if not columns:
        raise InputError(f"{path} has no column of numbers beside {label!r}: left out {', '.join(words + indices)}.")
    return LabelledFeatures(
        np.stack(list(columns.values()), 1),
        **known,
        notes=_notes(list(columns), indices, answers, words),
        columns=tuple(columns),
        splits=splits,
    )


def _used(path: Path, names: Collection[str], taken: Collection[str | None], asked: Columns) -> list[str]:
    """The columns that become features: those of a model's plan, or all that are not taken for something else."""
    if asked.plan is None:
        return [name for name in names if name not in taken]
    used = [one.name for one in asked.plan]
    if lacking := [name for name in used if name not in names]:
        raise InputError(f"{path} lacks the column {lacking[0]!r}, which the model was fitted to.")
    return used


def _encoded(
    cells: Mapping[str, Cells], asked: Columns, splits: np.ndarray | None, *left_out: Sequence[str]
) -> LabelledFeatures:
    """Features of all columns by a model's plan, or by one that is learnt of all rows but those of a test split."""
    dropped: list[str] = []
    plan = asked.plan
    if plan is None:
        indices = [name for name, column in cells.items() if isinstance(column, np.ndarray) and _is_index(name, column)]
        left_out = (indices, *left_out[1:]) if indices else left_out
        usable = {name: column for name, column in cells.items() if name not in indices}
        plan, dropped = plan_columns(usable, training_rows(splits, len(next(iter(cells.values()), ()))))
    if not plan:
        raise InputError(f"no column can be used beside the labels: left out {listed(dropped)}.")
    notes = (*_notes([one.name for one in plan], *left_out), *encoding_notes(plan, dropped))
    features = encode_table(cells, plan)
    empty = np.empty(0)
    return LabelledFeatures(features, empty, notes=notes, columns=feature_names(plan), splits=splits, plan=plan)


def _has_more_than_numbers(path: Path, schema: Any) -> bool:
    """Whether a Parquet file has columns of words, truth values or dates, or numbers with empty cells."""
    if features_column(schema) is not None:
        return False
    numbers = set(numeric_columns(schema))
    usual = {*LABELS, *LABEL, *NAMES, *GROUP, *SPLIT}
    if any(name not in numbers and name.lower() not in usual for name in schema.names):
        return True
    return any(read_column(path, name).null_count for name in numbers)


def _notes(taken: list[str], *left_out: Sequence[str]) -> tuple[str, ...]:
    """What was taken for features, and what was left out and why."""
    left = zip(LEFT_OUT, left_out, strict=False)
    return (
        f"Features: {listed(taken)}.",
        *(f"Left out, since {why}: {listed(names)}." for why, names in left if names),
    )


def _is_index(name: str, values: np.ndarray) -> bool:
    """Whether a column only numbers the rows: consecutive whole numbers in any order, or a name that pandas gives.

    Rows that were once sorted by class would give the label away.
    """
    if not name or name.lower().startswith(("unnamed", "__index_level_")):
        return True
    if len(values) < 3 or not np.isfinite(values).all():
        return False
    return bool((np.diff(np.sort(values)) == 1).all()) and float(values[0]).is_integer()


def _answers(names: Collection[str], label: str) -> list[str]:
    """Other columns that by their names hold a label, a group or a split: a head would read the answer off them."""
    usual = {*LABELS, *LABEL, *GROUP, *SPLIT, "y_code", "group_code", "class_name", "class_names"}
    return [name for name in names if name != label and name.lower() in usual]


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
            place, cell = table.lines[rows[wrong[0]]], cells[wrong[0]]
            holes.append(f"{name!r} in {len(wrong)} of {len(rows)} (first in line {place}: {cell!r})")
        else:
            left_out.append(name)
    if holes:
        more = [f"and {len(holes) - NAMED_COLUMNS} more columns"] if len(holes) > NAMED_COLUMNS else []
        shown = "; ".join(holes[:NAMED_COLUMNS] + more)
        raise InputError(f"{table.path}: columns of numbers have cells without one: {shown}. Fill them, or drop them.")
    return columns, left_out


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pick(path: Path, arrays: Collection[str], role: str, asked: str | None, usual: Iterable[str]) -> str:
    found = _pick_any(path, arrays, role, asked, usual)
    if found is None:
        raise InputError(f"{path} has no {role} by a usual name: name them with --{role}. It has {', '.join(arrays)}.")
    return found


def _pick_any(path: Path, arrays: Collection[str], role: str, asked: str | None, usual: Iterable[str]) -> str | None:
    """The array or column asked for, else the first of a usual name."""
    if asked is not None and asked not in arrays:
        _unknown(path, arrays, asked, f"--{role}")
    return asked or next((name for name in usual if name in arrays), None)


def _rows(
    path: Path, arrays: Mapping[str, np.ndarray], known: Collection[str], where: Sequence[str], samples: int
) -> np.ndarray:
    """The rows (N,) in which every named array has the value asked for, compared as text."""
    kept = np.ones(samples, dtype=bool)
    for condition in where:
        name, sign, value = condition.partition("=")
        if not sign:
            raise InputError(f"--where {condition} must be NAME=VALUE, such as split=train.")
        if name not in arrays:
            _unknown(path, known, name, "--where")
        if arrays[name].shape != (samples,):
            raise InputError(f"--where {condition}: {name} has shape {arrays[name].shape}, expected ({samples},).")
        texts = arrays[name].astype(str)
        if not (kept & (texts == value)).any():
            values = np.unique(texts[kept])
            shown = ", ".join(values[:10]) + (" ..." if len(values) > 10 else "")
            raise InputError(f"--where {condition} keeps no row of {path}: {name} has the values {shown}.")
        kept &= texts == value
    return kept


def _unknown(path: Path, arrays: Collection[str], name: str, option: str) -> NoReturn:
    hint = did_you_mean(name, arrays)
    raise InputError(f"{path} has no {name!r} for {option}: {hint}It has {', '.join(arrays)}.")
