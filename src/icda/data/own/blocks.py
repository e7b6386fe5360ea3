"""Rows of feature files in blocks: what a worker needs to know to read its part itself."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from icda.data.embedding.features import map_array, map_features
from icda.data.embedding.samples import Columns
from icda.data.missing import plain_names
from icda.data.own.parquet import ParquetTable, features_column, open_parquet
from icda.data.own.table import LABELS, SPLIT
from icda.errors import InputError, MissingFileError

_mapped = lru_cache(maxsize=4)(map_features)
BLOCK_BYTES = 64 * 2**20  # of features as they lie on disk


@dataclass(frozen=True)
class ArrayBlock:
    """Rows start:stop of an .npy, with labels and groups in others, or of a file of `icda embed`, which has them all."""

    path: Path
    start: int
    stop: int
    targets: Path | None = None  # None for a file of `icda embed`
    attributes: Path | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"rows {self.start} to {self.stop - 1} of {self.path}"

    def _rows(self, what: str) -> np.ndarray:
        if self.targets is None:
            known = _mapped(self.path)
            values = {"features": known.features, "labels": known.y, "groups": known.group}[what]
        else:
            file = {"features": self.path, "labels": self.targets, "groups": self.attributes}[what]
            values = None if file is None else map_array(file)
        if values is None:
            raise InputError(f"{self.path} has no {what}: embed inputs with {what}, or ask for none (--{what}).")
        return values[self.start : self.stop]

    def labels(self) -> np.ndarray:
        return plain_names(np.array(self._rows("labels")))

    def groups(self) -> np.ndarray:
        return plain_names(np.array(self._rows("groups")))

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self._rows("features"), self.labels()


@dataclass(frozen=True)
class ParquetBlock:
    """One row group of a Parquet file."""

    path: Path
    group: int
    rows: int
    features: tuple[str, ...]
    target: str
    attributes: str | None = None

    def __len__(self) -> int:
        return self.rows

    def __str__(self) -> str:
        return f"row group {self.group} of {self.path}"

    @property
    def _table(self) -> ParquetTable:
        return _table(self.path, self.features, self.target, self.attributes)

    def labels(self) -> np.ndarray:
        return self._table.read_group(self.group, [self.target]).targets

    def groups(self) -> np.ndarray:
        assert self.attributes is not None
        groups = self._table.read_group(self.group, [self.target, self.attributes]).groups
        assert groups is not None
        return groups

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        samples = self._table.read_group(self.group)
        return samples.features, samples.targets


Block = ArrayBlock | ParquetBlock


def find_blocks(path: Path, wanted: Columns, block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """The blocks of an .npy (beside `--labels LABELS.npy`), of an .npz of `icda embed`, or of Parquet files in a folder."""
    if not path.exists():
        raise MissingFileError(f"{path.absolute()} is not there: give an .npy, .npz, .parquet or a folder of Parquet.")
    kind = path.suffix.lower()
    if wanted.where or wanted.names:
        raise InputError("--where and --names are for files that are read as a whole: leave them out with --on ray.")
    if kind == ".npy":
        return _array_blocks(path, wanted, block_bytes)
    if kind == ".npz":
        return _mapped_blocks(path, wanted, block_bytes)
    if kind == ".parquet" or path.is_dir():
        return _parquet_blocks(path, wanted)
    raise InputError(f"{path} ends in {path.suffix!r}, expected .npy, .npz, .parquet or a folder of Parquet files.")


def number_kind(block: Block) -> torch.dtype:
    """What a block's rows are computed in: float64 as they are, all else in float32."""
    return torch.float64 if block.read()[0].dtype.name == "float64" else torch.float32


def feature_names(block: Block) -> tuple[tuple[str, ...] | None, str | None]:
    """The columns, or the array, that hold the features; neither for an .npy."""
    if isinstance(block, ParquetBlock):
        return block.features, None
    return None, "features" if block.targets is None else None


def names_split(block: Block) -> bool:
    """Whether the file of a block says which rows are kept apart for a test."""
    if isinstance(block, ParquetBlock):
        return any(name in SPLIT for name in block._table.dataset.schema.names)
    return block.targets is None and _mapped(block.path).split is not None


def _array_blocks(path: Path, wanted: Columns, block_bytes: int) -> list[Block]:
    if wanted.labels is None:
        raise InputError(f"{path} holds one array: name the other file with --labels LABELS.npy.")
    targets = Path(wanted.labels).expanduser()
    features, labels = map_array(path), map_array(targets)
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"{path} has shape {features.shape} and {targets} {labels.shape}: expected (N, A) and (N,), one label per row."
        )
    groups = None if wanted.groups is None else Path(wanted.groups).expanduser().absolute()
    if groups is not None and map_array(groups).shape != labels.shape:
        raise InputError(f"{groups} has shape {map_array(groups).shape}, expected {labels.shape}: one group per row.")
    spans = _spans(path, features, block_bytes)
    return [ArrayBlock(path.absolute(), *span, targets.absolute(), groups) for span in spans]


def _mapped_blocks(path: Path, wanted: Columns, block_bytes: int) -> list[Block]:
    for option, name, taken in (
        ("features", wanted.features, "features"),
        ("labels", wanted.labels, "y"),
        ("groups", wanted.groups, "group"),
    ):
        if name not in (None, taken):
            raise InputError(
                f"blocks of an .npz are its arrays 'features' and 'y', as `icda embed` writes them, got --{option} {name}: "
                "save the arrays as .npy files to choose others."
            )
    spans = _spans(path, map_features(path).features, block_bytes)
    return [ArrayBlock(path.absolute(), *span) for span in spans]


def _parquet_blocks(path: Path, wanted: Columns) -> list[Block]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} holds no .parquet file.")
    with open_parquet(files[0]) as first:
        schema = first.schema_arrow
    target = wanted.labels or next((name for name in LABELS if name in schema.names), None)
    features = wanted.features or features_column(schema)
    if target is None or features is None:
        missing = "labels" if target is None else "features"
        raise InputError(f"{files[0]}: name the column of the {missing} with --{missing}. It has {schema.names}.")
    blocks: list[Block] = []
    columns: tuple[str, ...] = (features,)
    width: int | None = None
    for file in files:
        with open_parquet(file) as opened:
            details = opened.metadata
        if not details.num_rows:  # many programs write a part without rows
            continue
        table = _table(file.absolute(), columns, target, wanted.groups)
        if width not in (None, table.width):
            raise InputError(f"{file} has {table.width} features per row, and the files before it {width}.")
        columns, width = tuple(table.features), table.width  # in the order of the first file
        groups = ((group, details.row_group(group).num_rows) for group in range(details.num_row_groups))
        blocks += [
            ParquetBlock(file.absolute(), group, rows, columns, target, wanted.groups) for group, rows in groups if rows
        ]
    if not blocks:
        raise InputError(f"{path} has no rows.")
    return blocks


def _spans(path: Path, features: np.ndarray, block_bytes: int) -> list[tuple[int, int]]:
    if features.dtype.kind not in "fiub":
        raise InputError(f"the features in {path} are of type {features.dtype}, expected numbers.")
    if not features.size:
        raise InputError(f"{path} has shape {features.shape}: there are no {'features' if len(features) else 'rows'}.")
    step = max(1, block_bytes // max(1, features.itemsize * features.shape[1]))
    return [(start, min(start + step, len(features))) for start in range(0, len(features), step)]


@lru_cache(maxsize=256)
def _table(path: Path, features: tuple[str, ...], target: str, groups: str | None = None) -> ParquetTable:
    return ParquetTable(path, features[0] if len(features) == 1 else list(features), target, groups=groups)
