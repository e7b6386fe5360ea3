"""Tasks by name, and where datasets lie on disk."""

import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path

from icda.data.splits import take_subset
from icda.data.task import Task
from icda.errors import MissingFileError
from icda.registry import Registry

TaskBuilder = Callable[[Path | None, int], Task]
DATA_VARIABLE = "ICDA_DATA"

TASKS: Registry[TaskBuilder] = Registry("task", package="icda.data.datasets", group="icda.tasks")


def create_task(
    name: str, root: str | PathLike[str] | None = None, data_seed: int = 0, subset: float | None = None
) -> Task:
    """Build the task `name`. `data_seed` decides what chance decides: which samples, which wrong labels, which colours.

    Datasets are looked for under `root`; without one under the environment variable ICDA_DATA, else under ./data. The
    tasks called digits... need no files. `subset` keeps a share of every split, or that many training samples with as
    much of the others, for a quick look: see `icda.data.splits`.

    >>> create_task("digits-lt").class_counts.tolist()
    [104, 67, 43, 28, 18, 11, 7, 4, 3, 2]
    >>> len(create_task("digits-lt", subset=50).train)
    50
    """
    task = TASKS.get(name)(data_root(root), data_seed)
    return task if subset is None else take_subset(task, subset, data_seed)


class DatasetNotFoundError(MissingFileError):
    """A dataset is not where it was looked for; the message says which files are needed and where they come from."""


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """`root` if given, else what ICDA_DATA names, else ./data."""
    return Path(root if root is not None else os.environ.get(DATA_VARIABLE) or "data").expanduser()


def find_folder(root: Path | None, dataset: str, layouts: Sequence[tuple[str, str]], files: str, home: str) -> Path:
    """The first of `layouts`, (folder, a file in it), that is there; the error names its `files` and who publishes them."""
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
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise DatasetNotFoundError(f"{dataset} in {folder} is not complete: {', '.join(missing)} is missing.")
