"""A features file of `icda embed` without reading the features."""

from __future__ import annotations

import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.embedding.features import Features, check_written, member_names, read_arrays
from icda.errors import InputError

ENTRY = "features.npy"


def map_features(path: str | PathLike[str]) -> Features:
    """As `load_features`, but the features stay in the file and are read as they are used.

    `icda embed` stores arrays uncompressed, so that the features are one run of bytes inside the archive.
    """
    path = Path(path).expanduser()
    check_written(path, member_names(path))
    others = read_arrays(path, [name for name in Features.__dataclass_fields__ if name != "features"])
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(ENTRY)
        if entry.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"the features in {path} are compressed and cannot be mapped: use load_features.")
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            shape, by_columns, dtype = read_header(stream)
            inside = stream.tell()
    offset = _data_offset(path, entry.header_offset) + inside
    order: Any = "F" if by_columns else "C"
    features = np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order=order)
    known: dict[str, Any] = others | {name: str(others[name]) for name in ("encoder", "encoder_version")}
    return Features(features=features, **known)


def _data_offset(path: Path, header_offset: int) -> int:
    """Where an entry's bytes begin: its local header has its own lengths of name and extra field."""
    with path.open("rb") as file:
        file.seek(header_offset + 26)
        name_length, extra_length = (int.from_bytes(file.read(2), "little") for _ in range(2))
    return header_offset + 30 + name_length + extra_length
