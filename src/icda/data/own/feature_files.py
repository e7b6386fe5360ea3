"""Features and labels from the files people have them in."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from icda.data.embedding.features import member_names, read_arrays, why
from icda.data.embedding.samples import Columns
from icda.data.missing import plain_names
from icda.data.own.encoding import Cells, Plan, cell_text, encode_table, encoding_notes, feature_names, plan_columns
from icda.data.own.parquet import ParquetTable, column_values, numeric_columns, open_parquet, read_columns
from icda.data.own.table import GROUP, LABEL, NAMED_COLUMNS, SPLIT, held_out_rows, listed, read_table
from icda.errors import InputError, MissingFileError
from icda.extras import require
from icda.registry import did_you_mean

FEATURES = ("features", "feats", "embeddings", "X", "x")
LABELS = ("y", "labels", "label", "targets", "target")
# What `icda embed` leaves beside the arrays.
EMBEDDING = ("encoder", "encoder_version", "image_size", "source", "source_column", "source_sha256")
NAMES = ("id", "ids", "names", "name", "path", "paths", "img_id")
LEFT_OUT = ("they only number the rows", "their names say label, group or split", "they hold no numbers")
NAMED = 5  # missing columns that a message lists


@dataclass(frozen=True)
class LabelledFeatures:
    """What a file holds, one entry per sample; None for what it does not say, no labels where none were asked for."""

    features: np.ndarray
    labels: np.ndarray = field(default_factory=lambda: np.empty(0))
    names: np.ndarray | None = None
    class_names: np.ndarray | None = None
    notes: tuple[str, ...] = ()  # what was taken and what was left out, for the user
    columns: tuple[str, ...] | None = None  # names of the features, where they stand in columns of their own
    array: str | None = None  # name of the features, where they are one array of several
    splits: np.ndarray | None = None
    groups: np.ndarray | None = None
    embedding: Mapping[str, str] = field(default_factory=dict)  # encoder, version, image size, where the inputs lie
    plan: Plan | None = None  # how words, dates and empty cells became numbers


def read_feature_file(path: Path, asked: Columns) -> LabelledFeatures:
    """Read an .npz, a .csv, a .parquet, or an .npy whose labels stand in another .npy, and keep the rows asked for.

    Groups are taken where they are named, and never guessed.
    """
    kind = path.suffix.lower()
    if kind not in (".npz", ".csv", ".parquet", ".npy"):
        raise InputError(f"{path} ends in {path.suffix!r}, expected .npz, .csv, .parquet or .npy.")
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes a features file.")
    if kind in (".npz", ".npy"):
        found = _from_npz(path, asked) if kind == ".npz" else _from_npy(path, asked)
    else:
        found = _from_table(CsvFile(path, asked) if kind == ".csv" else ParquetFile(path, asked), asked)
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
        "features": _pick(path, members, "features", asked.features, FEATURES)
        if asked.array is None
        else _fitted_array(path, members, asked.array),
        "labels": None if asked.unlabelled else _pick(path, members, "labels", asked.labels, LABELS),
        "names": _pick_any(path, members, "names", asked.names, NAMES),
        "groups": _pick_any(path, members, "groups", asked.groups, ()),
        "splits": _pick_any(path, members, "splits", asked.splits, (*SPLIT, "splits")),
    }
    conditions = [condition.partition("=")[0] for condition in asked.where]
    arrays = read_arrays(path, [*filter(None, chosen.values()), *conditions, *EMBEDDING, "class_names"])
    known: dict[str, Any] = {role: arrays[name] for role, name in chosen.items() if name is not None}
    features = known["features"]
    if known.get("splits", np.zeros(1)).ndim == 0:
        del known["splits"]
    if asked.names is None and "names" in known and known["names"].shape != features.shape[:1]:
        del known["names"]  # of the classes, say
    for role, array in known.items():
        if role != "features" and (array.ndim != 1 or len(array) != len(features)):
            raise InputError(
                f"{path}: {role} ({chosen[role]}) need one value per row, {len(features)} in all, got {array.shape}."
            )
    if asked.where:
        rows = _rows(path, arrays, members, asked.where, len(features))
        known = {role: array[rows] for role, array in known.items()}
    embedding = {name: str(arrays[name]) for name in EMBEDDING if name in arrays and arrays[name].ndim == 0}
    class_names = arrays.get("class_names") if "labels" in known and known["labels"].dtype.kind in "iu" else None
    return LabelledFeatures(**known, class_names=class_names, embedding=embedding, array=chosen["features"])


def _fitted_array(path: Path, members: Collection[str], fitted: str) -> str:
    """The array that a model was fitted to; one called as usual may be called otherwise as usual in another file."""
    found = fitted if fitted in members else next((name for name in FEATURES if name in members), None)
    if found is None or (found != fitted and fitted not in FEATURES):
        said = f"{path} has no array {fitted!r}, which the model was fitted to: name another with --column"
        raise InputError(f"{said}; it has {', '.join(members)}.")
    return found


def _from_npy(path: Path, asked: Columns) -> LabelledFeatures:
    if asked.unlabelled:
        return LabelledFeatures(np.asarray(map_array(path)))
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


def features_column(schema: Any, fitted: Sequence[str] | None = None) -> str | None:
    """The column of lists that a model was fitted to, or else one that is called as features usually are."""
    kinds: Any = require("pyarrow.types", "parquet", "Parquet files")
    is_list = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    lists = {field.name for field in schema if any(fits(field.type) for fits in is_list)}
    return next((name for name in (*(fitted or ()), *FEATURES) if name in lists), None)


class CsvFile:
    """The columns of a CSV as texts, in the rows that --where keeps."""

    lists = None

    def __init__(self, path: Path, asked: Columns) -> None:
        if asked.features is not None:
            raise InputError(f"--features names an array of an .npz; of {path} all numeric columns are taken.")
        self.path, self.table = path, read_table(path)
        self.names = list(self.table.columns)
        self.conditions = {condition.partition("=")[0] for condition in asked.where}
        known = {name: _objects(self.table.columns[name]) for name in self.conditions if name in self.names}
        self.rows = np.flatnonzero(_rows(path, known, self.names, asked.where, len(self.table.lines)))
        self.lines = [self.table.lines[row] for row in self.rows]

    def find(self, role: str, given: str | None, usual: Sequence[str]) -> str | None:
        return self.table.find(role, given, usual)

    def label(self, given: str | None) -> str:
        return self.table.require("label", given, LABEL)

    def column(self, role: str, name: str) -> np.ndarray:
        if role in ("labels", "groups"):
            return np.array(self.table.names(name, may_be_empty=role == "groups"))[self.rows]
        return _objects(self.table.columns[name])[self.rows]

    def numeric(self, names: Sequence[str]) -> Sequence[str]:
        return names  # what holds no numbers is found when they are read

    def is_plain(self, names: Sequence[str]) -> bool:
        """Whether all cells of some columns are numbers."""
        return all(_is_number(cell) for column in self.cells(names).values() for cell in column)

    def cells(self, names: Sequence[str]) -> dict[str, Cells]:
        return {name: [self.table.columns[name][row] for row in self.rows] for name in names}

    def numbering(self, cells: Mapping[str, Cells]) -> list[str]:
        """The columns that only number the rows, those that are not kept among them."""
        whole = {name: self.table.columns[name] for name in cells}
        plain = {name: column for name, column in whole.items() if all(map(_is_number, column))}
        return [name for name, column in plain.items() if _is_index(name, np.array(column, dtype=np.float64))]


class ParquetFile:
    """The columns of a Parquet file, with the types that the file gives; `lists` is that of features in lists."""

    conditions: Collection[str] = ()
    lines: Sequence[int] = ()

    def __init__(self, path: Path, asked: Columns) -> None:
        if asked.where:
            raise InputError("--where reads .npz and .csv files: filter a Parquet file before the audit.")
        with open_parquet(path) as file:
            schema = file.schema_arrow
            if not file.metadata.num_rows:
                raise InputError(f"{path} has no rows.")
        self.path, self.names = path, list(schema.names)
        self.plain, self.lists = numeric_columns(schema), features_column(schema, asked.fitted)

    def find(self, role: str, given: str | None, usual: Sequence[str]) -> str | None:
        return _pick_any(self.path, self.names, f"{role}s", given, usual)

    def label(self, given: str | None) -> str:
        return _pick(self.path, self.names, "labels", given, [*LABELS, *LABEL])

    def column(self, role: str, name: str) -> np.ndarray:
        read = read_columns(self.path, [name])[name]
        return column_values(read.combine_chunks(), name) if role == "labels" else _objects(read.to_pylist())

    def numeric(self, names: Sequence[str]) -> Sequence[str]:
        return [name for name in names if name in self.plain]

    def is_plain(self, names: Sequence[str]) -> bool:
        """Whether some columns hold numbers without a gap, or names."""
        if any(name not in self.plain and name.lower() not in NAMES for name in names):
            return False
        return not any(column.null_count for column in read_columns(self.path, self.numeric(names)).columns)

    def cells(self, names: Sequence[str]) -> dict[str, Cells]:
        read, found = read_columns(self.path, names), dict[str, Cells]()
        for name in names:
            values = read[name].to_numpy() if name in self.plain else np.empty(0, dtype=object)
            found[name] = values if values.dtype != object else [cell_text(value) for value in read[name].to_pylist()]
        return found

    def numbering(self, cells: Mapping[str, Cells]) -> list[str]:
        return [name for name, column in cells.items() if isinstance(column, np.ndarray) and _is_index(name, column)]


def _from_table(table: CsvFile | ParquetFile, asked: Columns) -> LabelledFeatures:
    """Columns of numbers or, where `asked.encode` or a model's plan says so, of words, dates and empty cells, too."""
    path, names = table.path, table.names
    label = None if asked.unlabelled else table.label(asked.labels)
    named, group = table.find("name", asked.names, NAMES), table.find("group", asked.groups, ())
    split = table.find("split", asked.splits, SPLIT)
    fitted = asked.fitted if asked.plan is None else tuple(one.name for one in asked.plan)
    is_listed = fitted is None or table.lists in fitted or not set(fitted) <= set(names)
    lists = asked.features or (table.lists if is_listed else None)
    answers = [] if fitted is not None or lists else [name for name in _answers(names, label) if name != group]
    taken = {label, named, group, *table.conditions, *answers}
    used = list(fitted) if fitted is not None else [name for name in names if name not in taken]
    named, split = None if named in used and not lists else named, None if split in table.conditions else split
    roles = {"labels": label, "names": named, "groups": group, "splits": split}
    known: dict[str, Any] = {role: table.column(role, name) for role, name in roles.items() if name is not None}
    if lists is not None:
        file = ParquetTable(path, lists, label)
        notes, features = _notes(file.features), file.in_memory().features
        return LabelledFeatures(features, **known, notes=notes, columns=tuple(file.features))
    if fitted is not None:
        _check_there(path, fitted, names)
    is_mixed = asked.plan is not None or (asked.encode and fitted is None and not table.is_plain(used))
    cells = table.cells(used if is_mixed or fitted is not None else table.numeric(used))
    indices = [] if fitted is not None else table.numbering(cells)
    cells = {name: column for name, column in cells.items() if name not in indices}
    if is_mixed:
        found = encoded(cells, asked.plan, known.get("splits"), path)
        taken_for = _notes([one.name for one in found.plan or ()], indices, answers)
        return replace(found, **known, notes=(*taken_for, *found.notes))
    columns, words = _numbers(path, cells, table.lines, strict=fitted is not None)
    if not columns:
        left = listed([*words, *indices, *answers])
        raise InputError(f"{path} has no column of numbers beside {label!r}: left out {left}.")
    notes = _notes(list(columns), indices, answers, words)
    return LabelledFeatures(np.stack(list(columns.values()), 1), **known, notes=notes, columns=tuple(columns))


def encoded(
    cells: Mapping[str, Cells], plan: Plan | None, splits: np.ndarray | None, path: Path | str
) -> LabelledFeatures:
    """Features of all columns by a model's plan, or by one that is learnt of all rows but those of a test split."""
    dropped: list[str] = []
    if plan is None:
        test = None if splits is None else held_out_rows(splits, str(path))
        rows = len(next(iter(cells.values()), ()))
        plan, dropped = plan_columns(cells, np.ones(rows, dtype=bool) if test is None else ~test)
    if not plan:
        raise InputError(f"{path}: no column can be used beside the labels: left out {listed(dropped)}.")
    notes, columns = tuple(encoding_notes(plan, dropped)), feature_names(plan)
    return LabelledFeatures(encode_table(cells, plan), notes=notes, columns=columns, plan=plan)


def _objects(cells: Sequence[Any]) -> np.ndarray:
    """As objects: one long text would make a NumPy text column as wide for every row."""
    return np.array(cells, dtype=object)


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


def _is_index(name: str, values: np.ndarray) -> bool:
    """Whether a column only numbers the rows: consecutive whole numbers in any order, or a name that pandas gives.

    Rows that were once sorted by class would give the label away.
    """
    if not name or name.lower().startswith(("unnamed", "__index_level_")):
        return True
    if len(values) < 3 or not np.isfinite(values).all():
        return False
    return bool((np.diff(np.sort(values)) == 1).all()) and float(values[0]).is_integer()


def _answers(names: Collection[str], label: str | None) -> list[str]:
    """Other columns that by their names hold a label, a group or a split: a head would read the answer off them."""
    usual = {*LABELS, *LABEL, *GROUP, *SPLIT, "y_code", "group_code", "class_name", "class_names"}
    return [name for name in names if name != label and name.lower() in usual]


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
        wrong = [place for place, cell in enumerate(column) if not _is_number(cell)]
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
