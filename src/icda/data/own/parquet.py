"""Features and labels in Parquet files: one file, many, or a folder, read batch by batch."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icda.data.missing import known_groups, plain_names
from icda.data.own.encoding import Cells, cell_text
from icda.data.own.table import FEATURES, NAMES, ColumnFile, as_objects, is_index
from icda.errors import IcdaError, InputError, MissingFileError, UnreadableError
from icda.extras import require
from icda.limits import LONGEST_NAME, check_unpacked
from icda.registry import did_you_mean

Source = str | PathLike[str] | Sequence[str | PathLike[str]]


class FeatureBatch(NamedTuple):
    """Features (n, A) and, for each row, a label, and a weight and a group where there are columns of them."""

    features: np.ndarray
    targets: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None


class ParquetTable(ColumnFile):
    """The columns of a Parquet dataset that a classifier needs; only a few batches are in memory at any time.

    `features` is the name of a column of lists, a list of column names, or the common beginning of the names of numeric
    columns, never target, weights or groups. Rows come in the order of the files, those of a folder sorted by name.
    Features are float32, or float64 where the file's numbers need it. An empty cell in `features` becomes NaN;
    elsewhere it is an error.
    """

    def __init__(
        self,
        path: Source,
        features: str | Sequence[str],
        target: str | None,
        sample_weight: str | None = None,
        groups: str | None = None,
    ) -> None:
        arrow = require("pyarrow.dataset", "parquet", "Parquet files")
        # Without pre-buffering a whole row group is not read ahead of its batches.
        options = arrow.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
        kind = arrow.ParquetFileFormat(default_fragment_scan_options=options)
        with readable(path):
            self.dataset = arrow.dataset(_existing(path), format=kind)
            self.num_rows = int(self.dataset.count_rows())
        self.path, self.names = path, self.dataset.schema.names
        self.target, self.sample_weight, self.groups = target, sample_weight, groups
        for role, name in (("target", target), ("weight", sample_weight), ("group", groups)):
            self.find(role, name)
        self.features = self._feature_columns(features)
        if self.num_rows == 0:
            raise InputError(f"{path} has no rows.")
        self.width = len(self.features)
        if self.is_list:
            with readable(path):
                first = self.dataset.head(1, columns=self.features).column(0)[0].as_py()
            if not first:
                raise InputError(f"the first row of column {self.features[0]!r} holds no numbers.")
            self.width = len(first)

    @property
    def other_columns(self) -> list[str]:
        return [name for name in (self.target, self.sample_weight, self.groups) if name is not None]

    def in_memory(self) -> FeatureBatch:
        """All samples at once, refused where they would take far more memory than their files take of the disk."""
        for name in self.dataset.files:
            with open_parquet(Path(name)) as file:
                check_unpacked(Path(name), _unpacked(file.metadata, [*self.features, *self.other_columns]))
        parts = zip(*self.batches(2**14), strict=True)
        columns: list[Any] = [None if part[0] is None else np.concatenate(part) for part in parts]
        return FeatureBatch(*columns)

    def labels(self) -> np.ndarray:
        """The distinct labels, sorted: one pass over the target column alone."""
        assert self.target is not None
        labels: set[Any] = set()
        for batch in self._scan([self.target], 2**16):
            labels.update(column_values(batch.column(self.target), self.target).tolist())
        return np.array(sorted(labels))

    def batches(self, batch_size: int) -> Iterator[FeatureBatch]:
        """Samples of at most `batch_size` rows, in order."""
        columns = [*dict.fromkeys([*self.features, *self.other_columns])]
        for batch in self._scan(columns, batch_size):
            if batch.num_rows:
                yield self._batch(batch, columns)

    def read_group(self, group: int, columns: Sequence[str] | None = None) -> FeatureBatch:
        """The samples of one row group of a single file; `columns` may leave the features out."""
        wanted = [*dict.fromkeys(columns or [*self.features, *self.other_columns])]
        with open_parquet(Path(self.dataset.files[0])) as file:
            check_unpacked(Path(self.dataset.files[0]), _unpacked(file.metadata, wanted, group))
            read = file.read_row_group(group, columns=wanted, use_threads=False)
        return self._batch(read.combine_chunks().to_batches()[0], wanted, with_features=columns is None)

    def _batch(self, batch: Any, columns: Sequence[str], with_features: bool = True) -> FeatureBatch:
        features = self._matrix(batch) if with_features else np.empty((batch.num_rows, 0))
        target, weight, group = (
            name if name in columns else None for name in (self.target, self.sample_weight, self.groups)
        )
        targets: Any = target and column_values(batch.column(target), target)
        weights: Any = weight and column_values(batch.column(weight), weight)
        groups = None if group is None else known_groups(column_values(batch.column(group), group, may_miss=True))
        return FeatureBatch(features, targets, weights, groups)

    def _scan(self, columns: list[str], batch_size: int) -> Iterator[Any]:
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        with readable(self.path):
            yield from self.dataset.to_batches(columns=columns, batch_size=batch_size, **ahead)

    def _matrix(self, batch: Any) -> np.ndarray:
        name, column = self.features[0], batch.column(self.features[0])
        if not self.is_list:
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in self.features]
            return np.stack([column.astype(self.dtype, copy=False) for column in columns], 1)
        if column.null_count:
            raise InputError(f"column {name!r} has rows without a list: drop them before the fit.")
        lengths = (
            {len(column[0].as_py())} if hasattr(column.type, "list_size") else set(column.value_lengths().to_pylist())
        )
        if lengths != {self.width}:
            raise InputError(f"column {name!r} has lists of {sorted(lengths)} numbers, expected {self.width} in each.")
        values = column.flatten().to_numpy(zero_copy_only=False)
        return values.astype(self.dtype, copy=False).reshape(-1, self.width)

    def _feature_columns(self, features: str | Sequence[str]) -> list[str]:
        names = self.names
        if isinstance(features, str):
            # A label, weight or group whose name begins alike is no feature: a model would read the answer off it.
            alike = [name for name in names if name.startswith(features) and name not in self.other_columns]
            columns = [features] if features in names else alike
            if not columns:
                hint = did_you_mean(features, names)
                raise InputError(f"no column is called {features!r} or begins so: {hint}Columns: {', '.join(names)}.")
        else:
            columns = list(features)
            for name in columns:
                self.find("feature", name)
        if leaked := [name for name in columns if name in self.other_columns]:
            raise InputError(
                f"column {leaked[0]!r} is given as a feature and as the target, weight or group: the model would read the "
                "answer off it. Take it out of the features."
            )
        types = [self.dataset.schema.field(name).type for name in columns]
        self.is_list = len(columns) == 1 and hasattr(types[0], "value_type")
        types = [types[0].value_type] if self.is_list else types
        for name, kind in zip(columns, types, strict=True):
            if not _is_number(kind):
                raise InputError(f"column {name!r} holds {kind}, expected numbers or one column of lists of numbers.")
        # Whole numbers of 32 bits and more need float64, too.
        self.dtype = np.result_type(np.float32, *(kind.to_pandas_dtype() for kind in types))
        return columns


class ParquetColumns(ColumnFile):
    """The columns of a Parquet file, with the types that the file gives."""

    lines: Sequence[int] = ()

    def __init__(self, path: Path, may_be_empty: bool = False) -> None:
        with open_parquet(path) as file:
            self.schema, self.rows = file.schema_arrow, file.metadata.num_rows
        if not self.rows and not may_be_empty:
            raise InputError(f"{path} has no rows.")
        self.path, self.names = path, self.schema.names
        self.plain = [field.name for field in self.schema if _is_number(field.type)]

    def __len__(self) -> int:
        return int(self.rows)

    def list_column(self, fitted: Sequence[str] | None) -> str | None:
        """The column of lists that a model was fitted to, or else one that is called as features usually are."""
        kinds: Any = require("pyarrow.types", "parquet", "Parquet files")
        is_list = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
        lists = {field.name for field in self.schema if any(fits(field.type) for fits in is_list)}
        return next((name for name in (*(fitted or ()), *FEATURES) if name in lists), None)

    def values(self, role: str, name: str) -> np.ndarray:
        read = read_columns(self.path, [name])[name]
        return column_values(read.combine_chunks(), name) if role == "labels" else as_objects(read.to_pylist())

    def numeric(self, names: Sequence[str]) -> Sequence[str]:
        """The columns of plain numbers."""
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
        """The columns that only number the rows."""
        return [name for name, column in cells.items() if isinstance(column, np.ndarray) and is_index(name, column)]


@contextmanager
def readable(path: object) -> Iterator[None]:
    """Inside, Parquet is read: what Arrow says of a damaged or foreign file becomes one sentence."""
    arrow = require("pyarrow", "parquet", "Parquet files")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, IcdaError) or getattr(error, "errno", None) is not None:  # the system's own, with a name
            raise
        said = str(error).partition("\n")[0]
        raise InputError(f"{path} is no Parquet file, or it is damaged ({said}).") from error


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file by its footer; none of its rows is read yet."""
    parquet = require("pyarrow.parquet", "parquet", "Parquet files")
    with readable(path), parquet.ParquetFile(path) as file:
        yield file


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """Some columns as a table of Arrow."""
    with open_parquet(path) as file:
        check_unpacked(path, _unpacked(file.metadata, names))
        return file.read(columns=list(names), use_threads=False)


def _unpacked(metadata: Any, columns: Sequence[str], group: int | None = None) -> int:
    """Bytes that some columns take in memory, by the footer: equal values in a row take next to nothing on the disk."""
    total = 0
    for number in range(metadata.num_row_groups) if group is None else (group,):
        chunks = metadata.row_group(number)
        for place in range(chunks.num_columns):
            chunk = chunks.column(place)
            if chunk.path_in_schema.partition(".")[0] in columns or chunk.path_in_schema in columns:
                total += max(8 * chunk.num_values, chunk.total_uncompressed_size)
    return total


def _is_number(kind: Any) -> bool:
    kinds = require("pyarrow.types", "parquet", "Parquet files")
    return bool(kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_boolean(kind))


@contextmanager
def spooled(
    table: ParquetTable,
    tempdir: str | PathLike[str] | None,
    in_memory_bytes: int,
    batch_size: int = 8192,
    advance: Callable[[int], None] | None = None,
) -> Iterator[FeatureBatch]:
    """All samples at once: features in memory if they are few, else in a temporary file that is gone afterwards.

    That there is room in `tempdir`, or the system's own folder, is checked before anything is read.
    """
    shape = (table.num_rows, table.width)
    size = table.dtype.itemsize * table.num_rows * table.width
    with tempfile.TemporaryDirectory(prefix="icda-", dir=tempdir) as folder:
        free = shutil.disk_usage(folder).free
        in_memory = size < in_memory_bytes
        if not in_memory and free < size:
            raise UnreadableError(
                f"{shape[0]} x {shape[1]} features take {size / 2**30:.1f} GiB on disk, and {Path(folder).parent} has "
                f"{free / 2**30:.1f} GiB free: name another folder with tempdir=."
            )
        path = Path(folder) / "features"
        rest: list[tuple[Any, ...]] = []
        with path.open("wb") as file:
            for batch in table.batches(batch_size):
                file.write(np.ascontiguousarray(batch.features).data)
                rest.append(batch[1:])
                if advance is not None:
                    advance(len(batch.targets))
        columns: list[Any] = [None if parts[0] is None else np.concatenate(parts) for parts in zip(*rest, strict=True)]
        features: np.ndarray = np.memmap(path, table.dtype, mode="r", shape=shape)
        yield FeatureBatch(np.array(features) if in_memory else features, *columns)
        del features


def _existing(path: Source) -> Any:
    """Paths as pyarrow takes them; it would name a missing file only by its own inner state."""
    single = isinstance(path, str | PathLike)
    parts: list[Any] = [path] if single else list(path)  # type: ignore[arg-type]
    paths = [Path(part).expanduser() for part in parts]
    for part in paths:
        if not part.exists():
            raise MissingFileError(f"{part.absolute()} is not there: give a Parquet file or a folder of them.")
    return str(paths[0]) if single else [str(part) for part in paths]


def column_values(column: Any, name: str, may_miss: bool = False) -> np.ndarray:
    """A column of labels, weights or groups; with `may_miss` a cell may be empty, and is None."""
    if column.null_count and not may_miss:
        raise InputError(f"column {name!r} has {column.null_count} empty cells or more: fill or drop them first.")
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    # As NumPy numbers, whole ones beside an empty cell would be fractions.
    cells = as_objects(column.to_pylist()) if column.null_count else column.to_numpy(zero_copy_only=False)
    values = plain_names(cells)
    if values.dtype != object:
        return values
    longest = max((len(cell) for cell in values.tolist() if isinstance(cell, str | bytes)), default=0)
    if longest > LONGEST_NAME:  # as a NumPy text every other cell would take as much room
        raise InputError(
            f"column {name!r} holds a text of {longest} characters, too many for a label or group (at most "
            f"{LONGEST_NAME}). Is it the right column?"
        )
    return values if column.null_count else np.array(values.tolist())
