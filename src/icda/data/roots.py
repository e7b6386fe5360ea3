"""Where datasets lie on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from icda.errors import MissingFileError

DATA_VARIABLE = "ICDA_DATA"


class DatasetNotFoundError(MissingFileError):
    """A dataset is not where it was looked for; the message says which files are needed and where they come from."""


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """`root` if given, else what ICDA_DATA names, else ./data.

    >>> data_root("somewhere").name
    'somewhere'
    """
    return Path(root if root is not None else os.environ.get(DATA_VARIABLE) or "data").expanduser()


def find_folder(root: Path | None, dataset: str, layouts: Sequence[tuple[str, str]], files: str, home: str) -> Path:
    """The first folder of `layouts`, pairs of (folder below the root, a file in it), that is there.

    `files` and `home` tell, in the error, what the folder should hold and who publishes it.
    """
    base = data_root(root)
    for folder, file in layouts:
        if (base / folder / file).is_file():
            return base / folder
    looked = " or ".join(str((base / folder / file).absolute()) for folder, file in layouts)
    raise DatasetNotFoundError(
        f"{dataset} is not there: looked for {looked}. Expected: {files}, from {home}. Put them there, or say where they "
        f"lie with root=... or the environment variable {DATA_VARIABLE}."
    )


def check_files(folder: Path, dataset: str, names: Iterable[str]) -> None:
    """Refuse a folder that lacks some of a dataset's files."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise DatasetNotFoundError(f"{dataset} in {folder} is not complete: {', '.join(missing)} is missing.")
