"""Training labels from a file beside the images, such as those that people gave (CIFAR-10N, CIFAR-100N)."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.data.embedding.features import read_arrays
from icda.data.own.table import read_table
from icda.data.task import Task
from icda.errors import InputError, MissingFileError, UnreadableError


def relabelled(task: Task, given: str) -> Task:
    """The task with training labels from FILE, or FILE:NAME where the file holds several; the task's own are then known.

    The file has one class number per image of the training set the task is made from, in that set's order, or one per
    training sample of the task. What the labels were is kept as the clean labels, which no method reads.
    """
    labels = read_labels(given)
    train = task.train
    if train.groups is not None:
        raise InputError(f"--labels {given}: the groups of task {task.name!r} are made of its own labels.")
    if len(labels) != len(train):
        known = getattr(train.source, "places", None)  # where only a part of the published images is stored
        places = train.rows if known is None else known[train.rows]
        size = int(places.max()) + 1
        if len(labels) < size:
            raise InputError(
                f"--labels {given} holds {len(labels)} labels: expected one per training sample of {task.name!r}, "
                f"{len(train)}, or one per image of the set it is made from, {size} or more."
            )
        labels = labels[places]
    wrong = labels[(labels < 0) | (labels >= task.num_classes)]
    if len(wrong):
        raise InputError(
            f"--labels {given} holds the label {int(wrong[0])}; task {task.name!r} has 0 to {task.num_classes - 1}."
        )
    clean = train.targets if train.clean_targets is None else train.clean_targets
    return replace(task, train=replace(train, targets=labels, clean_targets=clean))


def read_labels(given: str) -> Tensor:
    """The class numbers (N,) in FILE or FILE:NAME: text, a column of a CSV file, numpy arrays, or a dict of them."""
    file, colon, own = given.rpartition(":")  # a colon may belong to the path itself
    named = colon and Path(file).suffix.lower() in _READERS
    path, name = (Path(file), own) if named else (Path(given), None)
    if not path.is_file():
        raise MissingFileError(f"--labels {given}: there is no file {path}.")
    if path.suffix.lower() not in _READERS:
        raise InputError(f"--labels {given}: expected a file of type {', '.join(_READERS)}, got {path.suffix!r}.")
    try:
        values = _READERS[path.suffix.lower()](path, name)
    except KeyError as error:
        raise InputError(f"--labels {given}: {path} holds nothing of the name {error}.") from error
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = "it holds more than arrays" if isinstance(error, pickle.UnpicklingError) else error
        raise UnreadableError(f"--labels {given}: {path} cannot be read as labels: {reason}") from error
    array = np.asarray(values)
    if array.ndim != 1 or not len(array) or not np.array_equal(array, array.astype(np.int64)):
        raise InputError(f"--labels {given}: expected one whole number per sample, got shape {array.shape}.")
    return torch.from_numpy(array.astype(np.int64))


def _torch(path: Path, name: str | None) -> Any:
    """A tensor, or a dict of arrays as CIFAR-10N publishes it; numpy arrays are data, nothing else is unpickled."""
    rebuild = np.zeros(0).__reduce__()[0]
    allowed: list[Any] = [np.ndarray, np.dtype, *(type(np.dtype(kind)) for kind in (np.int64, np.int32, np.uint8))]
    # numpy 1 and 2 write the same function under two names.
    allowed += [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    with torch.serialization.safe_globals(allowed):
        found = torch.load(path, map_location="cpu", weights_only=True)
    return _one_of(found, name, path) if isinstance(found, Mapping) else found


def _one_of(found: Mapping[str, Any], name: str | None, path: Path) -> Any:
    if name is None:
        raise InputError(f"it holds {', '.join(map(str, found))}: name one of them, as {path.name}:NAME")
    return found[name]


_READERS: dict[str, Callable[[Path, str | None], Any]] = {
    ".txt": lambda path, name: [int(line) for line in path.read_text().split()],
    ".csv": lambda path, name: [int(cell) for cell in _one_of(read_table(path).columns, name, path)],
    ".npy": lambda path, name: np.load(path, allow_pickle=False),
    ".npz": lambda path, name: _one_of(read_arrays(path), name, path),
    ".pt": _torch,
}
