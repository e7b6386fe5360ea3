"""Rows of feature files in blocks: what a worker needs to know to read its part itself."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.data.embedding.features import map_array, map_features
from icda.data.embedding.samples import Columns, Reads
from icda.data.missing import known_groups, plain_names
from icda.data.own.parquet import ParquetColumns, ParquetTable, open_parquet
from icda.data.own.table import SPLIT, listed
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

    @property
    def reads(self) -> Reads:
        width = _arrays(self.path, self.targets, self.attributes)["features"].shape[1]
        return Reads("features", width, array="features" if self.targets is None else None)

    @property
    def names_split(self) -> bool:
        """Whether the file says which rows are kept apart for a test."""
        return "split" in _arrays(self.path, self.targets, self.attributes)

    def _rows(self, what: str) -> np.ndarray:
        values = _arrays(self.path, self.targets, self.attributes).get(what)
        if values is None:
            raise InputError(f"{self.path} has no {what}: embed inputs with {what}, or ask for none (--{what}).")
        return values[self.start : self.stop]

    def labels(self) -> np.ndarray:
        return plain_names(np.array(self._rows("labels")))

    def groups(self) -> np.ndarray:
        return known_groups(plain_names(np.array(self._rows("groups"))))

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
    def reads(self) -> Reads:
        return Reads("features", self._table.width, columns=self.features)

    @property
    def names_split(self) -> bool:
        """Whether the file says which rows are kept apart for a test."""
        return any(name in SPLIT for name in self._table.names)

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
        raise InputError("--where and --names are for files that are read as a whole: leave them out with --on.")
    if kind in (".npy", ".npz"):
        return _array_blocks(path, wanted, block_bytes)
    if kind == ".parquet" or path.is_dir():
        return _parquet_blocks(path, wanted)
    raise InputError(f"{path} ends in {path.suffix!r}, expected .npy, .npz, .parquet or a folder of Parquet files.")


def number_kind(block: Block) -> torch.dtype:
    """What a block's rows are computed in: float64 as they are, all else in float32."""
    return torch.float64 if block.read()[0].dtype.name == "float64" else torch.float32


def _array_blocks(path: Path, wanted: Columns, block_bytes: int) -> list[Block]:
    if path.suffix.lower() == ".npz":
        for option, usual in (("features", "features"), ("labels", "y"), ("groups", "group")):
            if (name := getattr(wanted, option)) not in (None, usual):
                raise InputError(
                    f"blocks of an .npz are its arrays 'features' and 'y', as `icda embed` writes them, got --{option} "
                    f"{name}: save the arrays as .npy files to choose others."
                )
        others: tuple[Path | None, ...] = (None, None)
    elif wanted.labels is None:
        raise InputError(f"{path} holds one array: name the other file with --labels LABELS.npy.")
    else:
        given = (wanted.labels, wanted.groups)
        others = tuple(None if name is None else Path(name).expanduser().absolute() for name in given)
    arrays = _arrays(path.absolute(), *others)
    features = arrays["features"]
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"the features in {path} are {features.dtype} of shape {features.shape}, expected numbers (N, A)."
        )
    if not features.size:
        raise InputError(f"{path} has shape {features.shape}: there are no {'features' if len(features) else 'rows'}.")
    for what, file in zip(("labels", "groups"), others, strict=True):
        if file is not None and arrays[what].shape != features.shape[:1]:
            raise InputError(
                f"{file} has shape {arrays[what].shape}, expected ({len(features)},): one {what[:-1]} per row."
            )
    step = max(1, block_bytes // max(1, features.itemsize * features.shape[1]))
    starts = range(0, len(features), step)
    return [ArrayBlock(path.absolute(), start, min(start + step, len(features)), *others) for start in starts]


def _arrays(path: Path, targets: Path | None, attributes: Path | None) -> dict[str, Any]:
    """The arrays of a file of `icda embed`, or those of several .npy, by what they hold; they stay on disk."""
    if targets is None:
        known = _mapped(path)
        found = {"features": known.features, "labels": known.y, "groups": known.group, "split": known.split}
        return {what: values for what, values in found.items() if values is not None}
    files = {"features": path, "labels": targets, "groups": attributes}
    return {what: map_array(file) for what, file in files.items() if file is not None}


def _parquet_blocks(path: Path, wanted: Columns) -> list[Block]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} holds no .parquet file.")
    first = ParquetColumns(files[0], may_be_empty=True)
    target, features = first.require("label", wanted.labels), wanted.features or first.list_column(None)
    if features is None:
        raise InputError(f"{files[0]}: name the column of the features with --features. It has {listed(first.names)}.")
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


@lru_cache(maxsize=256)
def _table(path: Path, features: tuple[str, ...], target: str, groups: str | None = None) -> ParquetTable:
    return ParquetTable(path, features[0] if len(features) == 1 else list(features), target, groups=groups)
