"""Features in files: arrays of an .npz or .npy, columns of a .csv or .parquet, as numbers or encoded."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from icda.data.embedding.features import DEFAULTS, map_array, member_names, read_arrays
from icda.data.embedding.samples import Columns, Reads, Samples
from icda.data.missing import known_groups, plain_names
from icda.data.own.encoding import Cells, Plan, encode_table, encoding_notes, feature_names, plan_columns
from icda.data.own.parquet import ParquetColumns, ParquetTable
from icda.data.own.table import (
    FEATURES,
    GROUP,
    LABEL,
    LABELS,
    NAMED_COLUMNS,
    SPLIT,
    ColumnFile,
    CsvTable,
    as_objects,
    is_number,
    listed,
    read_table,
)
from icda.errors import InputError, MissingFileError
from icda.registry import did_you_mean

FILES = (".npz", ".npy", ".parquet")
# What `icda embed` leaves beside the arrays.
EMBEDDING = ("encoder", "encoder_version", "image_size", "source", "source_column", "source_sha256")
LEFT_OUT = ("they only number the rows", "their names say label, group or split", "they hold no numbers")
# Columns that by their names hold a label, a group or a split: a head would read the answer off them.
ANSWERS = {*LABELS, *LABEL, *GROUP, *SPLIT, "y_code", "group_code", "class_name", "class_names"}
NAMED = 5  # missing columns that a message lists


class Archive(ColumnFile):
    """The arrays of an .npz; only those that are needed are read, the rest may be large."""

    holds = "array"
    usual: ClassVar = {**ColumnFile.usual, "split": (*SPLIT, "splits"), "features": FEATURES}

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, member_names(path)


def open_table(path: Path) -> Archive | ParquetColumns | CsvTable:
    """The columns of a .parquet or .csv, or the arrays of an .npz."""
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes a features file.")
    kinds: dict[str, Any] = {".npz": Archive, ".parquet": ParquetColumns}
    return kinds.get(path.suffix.lower(), read_table)(path)


def read_features(path: Path, asked: Columns) -> Samples:
    """Features of an .npz, a .csv, a .parquet, or an .npy whose labels stand in another .npy, in the rows asked for.

    Groups are taken where they are named, and never guessed.
    """
    if path.suffix.lower() not in (*FILES, ".csv"):
        raise InputError(f"{path} ends in {path.suffix!r}, expected .npz, .csv, .parquet or .npy.")
    if path.suffix.lower() == ".npy":
        return _of_npy(path, asked)
    found = open_table(path)
    samples = _of_archive(found, asked) if isinstance(found, Archive) else _of_columns(found, asked)
    return replace(samples, reads=replace(samples.reads, label=asked.labels, group=asked.groups))


def _of_npy(path: Path, asked: Columns) -> Samples:
    if not asked.unlabelled and asked.reads is not None:
        raise InputError(f"{path} holds features without labels: put both into one .npz, under the names X and y.")
    named = asked.features or asked.names or asked.groups or asked.where
    if not asked.unlabelled and (asked.labels is None or named):
        raise InputError(
            f"{path} holds one array: name the other file with --labels LABELS.npy, and nothing else; --groups, --names "
            "and --where need the named arrays of an .npz or the columns of a .csv."
        )
    features = _with_rows(map_array(path), path)
    samples = Samples(_embedded({}, features), range(len(features)), features=features, source=path)
    if asked.labels is None:
        return samples
    # Another file: its labels are those of these rows, and of no others that the model is judged on later.
    return replace(samples, labels=plain_names(np.asarray(map_array(Path(asked.labels).expanduser()))))


def _with_rows(features: np.ndarray, path: Path) -> np.ndarray:
    if not features.ndim:
        raise InputError(f"{path}: features are numbers of shape (N, A), got a single one.")
    return features


def _roles(found: ColumnFile, asked: Columns) -> dict[str, str]:
    """The columns of labels, ids, groups and splits, as far as there are any."""
    roles = {
        "labels": None if asked.unlabelled else found.require("label", asked.labels),
        "ids": found.find("name", asked.names),
        "groups": found.find("group", asked.groups, ()),
        "splits": found.find("split", asked.splits),
    }
    return {role: name for role, name in roles.items() if name is not None}


def _plain(known: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Values of samples without bytes, dates and the like; a group that is not known is None."""
    plain = {role: values if role in ("ids", "class_names") else plain_names(values) for role, values in known.items()}
    return plain | ({"groups": known_groups(plain["groups"])} if "groups" in plain else {})


def _of_archive(found: Archive, asked: Columns) -> Samples:
    path, roles, fitted = found.path, _roles(found, asked), None if asked.features is not None else asked.reads
    array = found.require("features", asked.features) if fitted is None else _fitted_array(found, fitted.array)
    conditions = [condition.partition("=")[0] for condition in asked.where]
    arrays = read_arrays(path, [array, *roles.values(), *conditions, *EMBEDDING, "class_names"])
    features, known = _with_rows(arrays[array], path), {role: arrays[name] for role, name in roles.items()}
    if known.get("splits", np.zeros(1)).ndim == 0:
        del known["splits"]
    if asked.names is None and "ids" in known and known["ids"].shape != features.shape[:1]:
        del known["ids"]  # of the classes, say
    for role, values in known.items():
        if values.ndim != 1 or len(values) != len(features):
            raise InputError(
                f"{path}: {role} ({roles[role]}) need one value per row, {len(features)} in all, got {values.shape}."
            )
    if asked.where:
        rows = _rows(found, arrays, asked.where, len(features))
        features, known = features[rows], {role: values[rows] for role, values in known.items()}
    if "labels" in known and known["labels"].dtype.kind in "iu" and "class_names" in arrays:
        known["class_names"] = arrays["class_names"]
    embedding = {name: str(arrays[name]) for name in EMBEDDING if name in arrays and arrays[name].ndim == 0}
    reads, ids = replace(_embedded(embedding, features), array=array), known.pop("ids", range(len(features)))
    return Samples(reads, ids, **_plain(known), features=features, source=path, embedding=embedding)


def _fitted_array(found: Archive, fitted: str | None) -> str:
    """The array that a model was fitted to; one called as usual may be called otherwise as usual in another file."""
    wanted = fitted or FEATURES[0]
    array = wanted if wanted in found.names else found.find("features", None)
    if array is None or (array != wanted and wanted not in FEATURES):
        said = f"{found.path} has no array {wanted!r}, which the model was fitted to: name another with --column"
        raise InputError(f"{said}; it has {', '.join(found.names)}.")
    return array


def _embedded(embedding: Mapping[str, str], features: np.ndarray) -> Reads:
    """Features of a shipped encoder are those of images or texts: the model can then read these, too."""
    encoder, version, given = (embedding.get(name) for name in EMBEDDING[:3])
    size = int(given) if given is not None and given.isdecimal() else None
    reads = Reads("features", features.shape[-1] if features.ndim else 0, encoder, version, size)
    kind = next((kind for kind, name in DEFAULTS.items() if name == encoder), None)
    # Files of an earlier icda do not say how large the images were: at another size their features would be others.
    if kind is None or version is None or (kind == "image" and size is None):
        return reads
    return replace(reads, kind=kind, column=embedding.get("source_column"))


def _of_columns(found: CsvTable | ParquetColumns, asked: Columns) -> Samples:
    """Columns of numbers or, where `asked.encode` or a model's plan says so, of words, dates and empty cells, too."""
    found, roles = _where(found, asked), _roles(found, asked)
    conditions = {condition.partition("=")[0] for condition in asked.where}
    roles = {role: name for role, name in roles.items() if role != "splits" or name not in conditions}
    reads = None if asked.features is not None else asked.reads
    fitted = None if reads is None else reads.fitted
    lists, names = found.list_column(fitted), found.names
    if asked.features or (lists and (fitted is None or lists in fitted or not set(fitted) <= set(names))):
        file = ParquetTable(found.path, asked.features or str(lists), roles.get("labels"))
        return with_features(_known(found, roles), file.in_memory().features, file.features, _notes(file.features))
    if fitted is not None:
        _check_there(found.path, fitted, names)
        used, answers = list(fitted), []
    else:
        given = {roles.get(role) for role in ("labels", "ids", "groups")}
        answers = [name for name in names if name not in given and name.lower() in ANSWERS]
        used = [name for name in names if name not in given | conditions and name not in answers]
    roles = {role: name for role, name in roles.items() if role != "ids" or name not in used}
    samples, plan = _known(found, roles), None if reads is None else reads.table
    is_mixed = plan is not None or (asked.encode and fitted is None and not found.is_plain(used))
    cells = found.cells(used if is_mixed or fitted is not None else found.numeric(used))
    indices = [] if fitted is not None else found.numbering(cells)
    cells = {name: column for name, column in cells.items() if name not in indices}
    if is_mixed:
        return with_encoded(samples, cells, plan, indices, answers)
    columns, words = _numbers(found.path, cells, found.lines, strict=fitted is not None)
    if not columns:
        left = listed([*words, *indices, *answers])
        raise InputError(f"{found.path} has no column of numbers beside {roles.get('labels')!r}: left out {left}.")
    notes = _notes(list(columns), indices, answers, words)
    return with_features(samples, np.stack(list(columns.values()), 1), list(columns), notes)


def _where(found: CsvTable | ParquetColumns, asked: Columns) -> CsvTable | ParquetColumns:
    """The table with the rows asked for."""
    if isinstance(found, CsvTable) and asked.features is not None:
        raise InputError(f"--features names an array of an .npz; of {found.path} all numeric columns are taken.")
    if not asked.where:
        return found
    if isinstance(found, ParquetColumns):
        raise InputError("--where reads .npz and .csv files: filter a Parquet file before the audit.")
    columns = {name: as_objects(cells) for name, cells in found.columns.items()}
    return found.only(_rows(found, columns, asked.where, len(found)).tolist())


def _known(found: CsvTable | ParquetColumns, roles: Mapping[str, str]) -> Samples:
    """The samples of a table, still without features."""
    known = _plain({role: found.values(role, name) for role, name in roles.items()})
    return Samples(Reads("features"), known.pop("ids", range(len(found))), **known, source=found.path)


def with_features(samples: Samples, features: np.ndarray, names: Sequence[str], notes: tuple[str, ...]) -> Samples:
    """The samples with features that stand in columns of these names."""
    reads = replace(samples.reads, width=features.shape[1], columns=tuple(names))
    return replace(samples, reads=reads, features=features, notes=notes)


def with_encoded(
    samples: Samples, cells: Mapping[str, Cells], plan: Plan | None = None, *left_out: Sequence[str]
) -> Samples:
    """The samples with all columns as features, by a model's plan or by one learnt of all rows but a test split's."""
    dropped: list[str] = []
    if plan is None:
        train = np.ones(len(samples), dtype=bool) if samples.test is None else ~samples.test
        plan, dropped = plan_columns(cells, train)
    if not plan:
        raise InputError(
            f"{samples.source or 'the data frame'}: no column can be used beside the labels: left out {listed(dropped)}."
        )
    notes = (*_notes([one.name for one in plan], *left_out), *encoding_notes(plan, dropped))
    found = with_features(samples, encode_table(cells, plan), feature_names(plan), notes)
    return replace(found, reads=replace(found.reads, table=plan))


def _check_there(path: Path, fitted: Sequence[str], names: Collection[str]) -> None:
    """Refuse a table that lacks columns which a model was fitted to."""
    if missing := [name for name in fitted if name not in names]:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        raise InputError(
            f"{path} lacks {len(missing)} of the {len(fitted)} columns that the model was fitted to: "
            f"{', '.join(missing[:NAMED])}{more}. {did_you_mean(missing[0], names)}".strip()
        )


def _notes(taken: list[str], *left_out: Sequence[str]) -> tuple[str, ...]:
    """What was taken for features, and what was left out and why."""
    left = zip(LEFT_OUT, left_out, strict=False)
    return (
        f"Features: {listed(taken)}.",
        *(f"Left out, since {why}: {listed(names)}." for why, names in left if names),
    )


def _numbers(
    path: Path, cells: Mapping[str, Cells], lines: Sequence[int], strict: bool
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of numbers, and the names of the others.

    Where half of the filled cells hold numbers, or `strict` says that all do, every cell has to: to leave a feature out
    for one empty cell would change the audit without a word.
    """
    columns: dict[str, np.ndarray] = {}
    left_out, holes = [], []
    for name, column in cells.items():
        if isinstance(column, np.ndarray):
            columns[name] = column.astype(np.result_type(np.float32, column.dtype), copy=False)
            continue
        wrong = [place for place, cell in enumerate(column) if not is_number(cell)]
        if not wrong:
            columns[name] = np.array(column, dtype=np.float64)
        elif strict or 2 * (len(column) - len(wrong)) >= sum(bool(cell.strip()) for cell in column) > 0:
            place = f"line {lines[wrong[0]]}" if lines else f"row {wrong[0]}"
            holes.append(f"{name!r} in {len(wrong)} of {len(column)} (first in {place}: {column[wrong[0]]!r})")
        else:
            left_out.append(name)
    if holes:
        more = [f"and {len(holes) - NAMED_COLUMNS} more columns"] if len(holes) > NAMED_COLUMNS else []
        shown = "; ".join(holes[:NAMED_COLUMNS] + more)
        raise InputError(f"{path}: columns of numbers have cells without one: {shown}. Fill them, or drop them.")
    return columns, left_out


def _rows(found: ColumnFile, arrays: Mapping[str, np.ndarray], where: Sequence[str], samples: int) -> np.ndarray:
    """The rows in which every named array or column has the value asked for, compared as text."""
    kept = np.ones(samples, dtype=bool)
    for condition in where:
        name, sign, value = condition.partition("=")
        if not sign:
            raise InputError(f"--where {condition} must be NAME=VALUE, such as split=train.")
        found.find("--where", name)
        if arrays[name].shape != (samples,):
            raise InputError(f"--where {condition}: {name} has shape {arrays[name].shape}, expected ({samples},).")
        texts = arrays[name].astype(str)
        if not (kept & (texts == value)).any():
            values = np.unique(texts[kept])
            shown = ", ".join(values[:10]) + (" ..." if len(values) > 10 else "")
            raise InputError(f"--where {condition} keeps no row of {found.path}: {name} has the values {shown}.")
        kept &= texts == value
    return np.flatnonzero(kept)
