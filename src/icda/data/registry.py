"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from icda.data.roots import data_root
from icda.data.subset import take_subset
from icda.data.task import Task
from icda.registry import Registry

TaskBuilder = Callable[[Path | None, int], Task]

TASKS: Registry[TaskBuilder] = Registry("task", package="icda.data.datasets", group="icda.tasks")


def create_task(
    name: str, root: str | PathLike[str] | None = None, data_seed: int = 0, subset: float | None = None
) -> Task:
    """Build the task `name`. `data_seed` decides what chance decides: which samples, which wrong labels, which colours.

    Datasets are looked for under `root`; without one under the environment variable ICDA_DATA, else under ./data. The
    tasks called digits... need no files. `subset` keeps a share of every split, or that many training samples with as
    much of the others, for a quick look: see `icda.data.subset`.

    >>> create_task("digits-lt").class_counts.tolist()
    [104, 67, 43, 28, 18, 11, 7, 4, 3, 2]
    >>> len(create_task("digits-lt", subset=50).train)
    50
    """
    task = TASKS.get(name)(data_root(root), data_seed)
    return task if subset is None else take_subset(task, subset, data_seed)
