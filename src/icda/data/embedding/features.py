"""The features file: one .npz that `np.load` reads without icda."""

import io
import math
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from icda.errors import IcdaError, InputError, MissingFileError
from icda.limits import check_unpacked
from icda.results.files import replacing

DEFAULTS: dict[Literal["image", "text"], str] = {"image": "efficientnet_lite0", "text": "minilm"}  # encoders


@dataclass(frozen=True)
class Features:
    """Features (N, A) and what is known of each row; `y`, `group` and `split` are None where they were not given.

    `y` and `group` are names; `y_code` and `group_code` number them, so that `class_names[y_code]` is `y`. `id` is an
    image's path, relative to the folder or as the table has it, or a text's row in the table, counted from 0. `skipped`
    are the ids of inputs that could not be read.
    """

    features: np.ndarray
    id: np.ndarray
    skipped: np.ndarray
    encoder: str
    encoder_version: str
    y: np.ndarray | None = None
    y_code: np.ndarray | None = None
    class_names: np.ndarray | None = None
    group: np.ndarray | None = None
    group_code: np.ndarray | None = None
    group_names: np.ndarray | None = None
    split: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.features)


def load_features(path: str | PathLike[str]) -> Features:
    """Read a file of `icda embed`; nothing in it can run code."""
    path = Path(path).expanduser()
    arrays = read_arrays(path)
    _check_written(path, arrays)
    return _features(arrays)


def map_features(path: str | PathLike[str]) -> Features:
    """As `load_features`, but the features, which `icda embed` stores uncompressed, are read as they are used."""
    path = Path(path).expanduser()
    others = read_arrays(path, [name for name in Features.__dataclass_fields__ if name != "features"])
    _check_written(path, member_names(path))
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("features.npy")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"the features in {path} are compressed and cannot be mapped: use load_features.")
        shape, by_columns, dtype, inside = _header(archive, entry)
    with path.open("rb") as file:  # an entry's local header has its own lengths of name and extra field
        file.seek(entry.header_offset + 26)
        name_length, extra_length = (int.from_bytes(file.read(2), "little") for _ in range(2))
    offset = entry.header_offset + 30 + name_length + extra_length + inside
    order: Literal["F", "C"] = "F" if by_columns else "C"
    return _features(others | {"features": np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order=order)})


def _features(arrays: Mapping[str, np.ndarray]) -> Features:
    known: dict[str, Any] = {name: arrays[name] for name in Features.__dataclass_fields__ if name in arrays}
    return Features(**known | {name: str(arrays[name]) for name in ("encoder", "encoder_version")})


def _check_written(path: Path, names: Collection[str]) -> None:
    """Refuse a file that lacks an array which every file of `icda embed` has."""
    if missing := [name for name in ("features", "id", "skipped", "encoder", "encoder_version") if name not in names]:
        raise InputError(f"{path} lacks {', '.join(missing)}: it was not written by `icda embed`.")


def map_array(file: Path) -> np.ndarray:
    """The array of an .npy file, which stays on disk until it is used."""
    if not file.is_file():
        raise MissingFileError(f"{file.absolute()} is not there.")
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{file} is no .npy file of numbers or texts, or it is damaged ({_why(error)}).") from error


def member_names(path: Path) -> list[str]:
    """What the arrays of an .npz file are called; none of them is read."""
    with _opened(path) as file:
        return list(file.files)


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, or those of `names` that it has."""
    with _opened(path) as file:
        wanted = [name for name in file.files if names is None or name in names]
        known = {entry.filename: entry for entry in file.zip.infolist()}
        entries = [known.get(f"{name}.npy") or known[name] for name in wanted]
        check_unpacked(path, sum(entry.file_size for entry in entries))
        for entry in entries:
            shape, _, dtype, inside = _header(file.zip, entry)
            if inside + math.prod(shape) * dtype.itemsize > entry.file_size:
                raise InputError(f"{path} is damaged: {entry.filename} is cut off.")
        return {name: file[name] for name in wanted}


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order and type of an array in an archive, and where in its entry the values begin."""
    with archive.open(entry) as stream:
        headers = np.lib.format
        is_first = headers.read_magic(stream) == (1, 0)
        read = headers.read_array_header_1_0 if is_first else headers.read_array_header_2_0
        return *read(stream), stream.tell()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not there: `icda embed DATA --out {path}` makes it.")
    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle
        raise InputError(f"{path} is no .npz file, an archive of arrays as np.savez writes it, or it is damaged.")
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (ValueError, OSError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        if isinstance(error, IcdaError):
            raise
        raise InputError(f"{path} is no .npz file of plain arrays, or it is damaged ({_why(error)}).") from error


def _why(error: Exception) -> str:
    """What NumPy says of a file; not its advice to allow pickles, which can run code."""
    return "it holds no plain array" if "pickle" in str(error) else str(error)


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], features: Iterable[np.ndarray], shape: tuple[int, int]
) -> None:
    """Write an .npz as a whole or not at all; `features` of that shape in all come block by block, never all at once.

    The same arrays give the same bytes: the entries of the archive carry no time.
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("features.npy", "w", force_zip64=True) as entry:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(entry, header)
            for block in features:
                entry.write(np.ascontiguousarray(block, dtype="<f4").data)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array, allow_pickle=False)
                entry.write(buffer.getbuffer())
