"""Torch Datasets, Hugging Face datasets and tensors as splits of a task. Items are drawn when they are needed."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset, default_collate

from icda.data.task import Inputs, Split, Task
from icda.errors import InputError, InputTypeError

TARGET_KEYS = ("labels", "label", "targets", "target", "y")
ASIDE = ("index", "idx", "id")  # keys that say which sample it is; a sample is known by its place
Column = str | int  # a key of a dict, or a position in a tuple


def part_of(item: Any, column: Column, what: str) -> Any:
    try:
        return item[column]
    except (KeyError, IndexError, TypeError):
        had = ", ".join(map(str, item)) if isinstance(item, Mapping) else f"a {type(item).__name__}"
        raise InputError(f"{what}={column!r} is not in an item of the dataset, which is or has {had}.") from None


def _numbers(value: Any) -> Any:
    """A list of numbers as a tensor; None for texts and the like, which no network reads."""
    if isinstance(value, list | tuple):
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            return None
    return value if isinstance(value, Tensor | np.ndarray | int | float) else None


class DatasetSource:
    """Inputs of a map-style dataset.

    `inputs`, `targets` and `groups` say where in an item things stand: a key of a dict or a position in a tuple; None
    for the usual ones. A dataset's transforms draw from the generators of torch, numpy and `random`: they are set for
    each batch from its own seed and put back, so that a run can be made again and resumed. Hence no thread draws ahead.
    """

    draws_ahead = False

    def __init__(
        self,
        dataset: Any,
        inputs: Column | None = None,
        targets: Column | None = None,
        groups: Column | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.dataset, self.inputs, self.targets, self.groups = dataset, inputs, targets, groups
        self.collate_fn = collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Inputs:
        """What `inputs` names, the first of a tuple, or all numbers of a dict but the label's."""
        with seeded(0 if generator is None else int(torch.randint(2**31, (), generator=generator))):
            items = self.items(rows.tolist())
            if self.collate_fn is not None:
                return self._inputs(self.collate_fn(items))
            try:
                return default_collate([self._inputs(item) for item in items])
            except (TypeError, RuntimeError) as error:
                raise InputTypeError(
                    f"items of the dataset make no batch ({str(error).splitlines()[0]}): let its transform return tensors "
                    "of one shape, or give collate_fn=, as a DataLoader has it."
                ) from error

    def items(self, rows: list[int]) -> list[Any]:
        """Several items at once where a dataset can: Hugging Face's reads them from one table."""
        getitems = getattr(self.dataset, "__getitems__", None)
        return list(getitems(rows)) if callable(getitems) else [self.dataset[row] for row in rows]

    def target_of(self, item: Any) -> Any:
        if self.targets is not None or not isinstance(item, Mapping):
            return part_of(item, 1 if self.targets is None else self.targets, "targets")
        found = [key for key in TARGET_KEYS if key in item]
        if len(found) != 1:
            raise InputError(
                f"an item of the dataset has the keys {', '.join(map(str, item))}: say which holds the label, "
                "targets='...'."
            )
        return item[found[0]]

    def _inputs(self, item: Any) -> Any:
        if self.inputs is not None or not isinstance(item, Mapping):
            given = part_of(item, 0 if self.inputs is None else self.inputs, "inputs")
            return given if (numbers := _numbers(given)) is None else numbers
        aside = {*ASIDE, *TARGET_KEYS, self.targets, self.groups}
        kept = {key: _numbers(value) for key, value in item.items() if key not in aside}
        kept = {key: value for key, value in kept.items() if value is not None}
        if not kept:
            raise InputError(f"an item has no numbers beside its label, only {', '.join(map(str, item))}.")
        return next(iter(kept.values())) if len(kept) == 1 and "input_ids" not in kept else kept

    def columns(self, track: Callable[..., Any]) -> tuple[Any, Any]:
        """Labels and, if they are named, groups: from the dataset's own lists, else by drawing each item once."""
        size = len(self)
        targets = known_column(self.dataset, self.targets, TARGET_KEYS)
        groups = None if self.groups is None else known_column(self.dataset, self.groups, ())
        if targets is not None and len(targets) == size:
            places = sorted({0, size // 2, size - 1})
            with seeded(0):
                drawn = [int(self.target_of(item)) for item in self.items(places)]
            if drawn != [int(np.asarray(targets)[place]) for place in places]:  # a target_transform, say
                targets = None
        if targets is not None and (self.groups is None or groups is not None):
            return targets, groups
        labels, found = [], []
        with seeded(0):
            for number in track(range(size), description="reading labels"):
                item = self.dataset[number]
                labels.append(self.target_of(item))
                if self.groups is not None:
                    found.append(part_of(item, self.groups, "groups"))
        return labels, found if self.groups is not None else None


class TensorSource:
    """Inputs that lie in memory already, of any shape."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.inputs.index_select(0, rows.to(self.inputs.device))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, the process's generators start from `seed`; after it they go on as if nothing had been drawn."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def known_column(dataset: Any, column: Column | None, names: Sequence[str]) -> Any:
    """A column that a dataset can give without drawing its items, or None.

    `column` names it; without one it is the `targets` of torchvision, the second tensor of a TensorDataset or a column of
    Hugging Face's of one of `names`. Subsets and concatenations are asked for their parts.
    """
    if isinstance(dataset, Subset):
        whole = known_column(dataset.dataset, column, names)
        return None if whole is None else np.asarray(whole)[np.asarray(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [known_column(part, column, names) for part in dataset.datasets]
        return None if any(part is None for part in parts) else np.concatenate([np.asarray(part) for part in parts])
    if isinstance(dataset, TensorDataset):
        place = 1 if column is None and "label" in names else column
        return dataset.tensors[place] if isinstance(place, int) and place < len(dataset.tensors) else None
    columns = getattr(dataset, "column_names", None)
    if isinstance(columns, list):
        found = [name for name in ((column,) if column is not None else names) if name in columns]
        return list(dataset.with_format(None)[found[0]]) if len(found) == 1 else None
    return getattr(dataset, "targets", None) if column is None and "label" in names else None


def dataset_task(
    train: Any,
    validation: Any = None,
    test: Any = None,
    metadata: Any = None,
    *,
    inputs: Column | None = None,
    targets: Column | None = None,
    groups: Any = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    name: str = "dataset",
    track: Callable[..., Any] | None = None,
) -> Task:
    """A task of torch Datasets, of Hugging Face datasets, or of tensors (inputs, targets).

    Items are tuples (input, target, ...) or dicts, and are drawn one batch at a time, each time anew: random transforms
    work as usual. Labels are read from the dataset's own list where it has one (`targets`, a column, a tensor), else by
    drawing each item once.

    Args:
        train: What to train on.
        validation: What to select by, if anything.
        test: What to evaluate on; the validation data if not given, and the training data if there are none.
        metadata: A small clean set, for methods that learn on one.
        inputs: Key or position of the input; by default the first of a tuple, and all numbers of a dict but the label.
        targets: Key or position of the label; by default the second of a tuple, and `labels`, `label`, `target` ... .
        groups: Key or position of the group, the groups (N,) of the training data, or a dict of them by split.
        collate_fn: Makes a batch of items, as a DataLoader's does.
        name: Of the task, for results.
        track: Wraps the range of items whose labels are read one by one, to show how far it is.

    Returns:
        The task.

    >>> task = dataset_task((torch.randn(4, 8), torch.tensor([0, 1, 1, 1])))
    >>> task.class_counts.tolist(), task.input_shape
    ([1, 3], (8,))
    """
    column = groups if isinstance(groups, str | int) else None
    arrays = (
        groups if isinstance(groups, Mapping) else {} if column is not None or groups is None else {"train": groups}
    )
    layout = (inputs, targets, column, collate_fn)
    given = {"train": train, "validation": validation, "test": test, "metadata": metadata}
    read = {
        part: _read(part, dataset, layout, arrays.get(part), track or (lambda rows, description: rows))
        for part, dataset in given.items()
        if dataset is not None
    }
    labels = {part: _labels(part, found[1]) for part, found in read.items()}
    names, numbered = _number_groups({part: found[2] for part, found in read.items() if found[2] is not None})
    splits: dict[str, Any] = {
        part: Split(source, torch.arange(len(source)), labels[part], numbered.get(part))
        for part, (source, _, _) in read.items()
    }
    splits.setdefault("test", splits.get("validation", splits["train"]))
    splits.setdefault("validation", None)
    example = splits["train"].source.fetch(torch.tensor([0]))
    shape = tuple(example.shape[1:]) if isinstance(example, Tensor) else ()
    kind = "text" if not isinstance(example, Tensor) else "image" if len(shape) == 3 else "features"
    classes = max(int(values.max()) for values in labels.values()) + 1
    return Task(name, classes, **splits, group_names=names, input_kind=kind, input_shape=shape)


def _read(
    part: str, dataset: Any, layout: tuple[Any, ...], array: Any, track: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """The source of a split's inputs, its labels, and its groups."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise InputTypeError(
            f"{part} is a {type(dataset).__name__}, and a dataset needs len() and items by number: a stream cannot be "
            "trained on, and of a DataLoader give its .dataset."
        )
    if (
        isinstance(dataset, tuple | list)
        and dataset
        and all(isinstance(values, np.ndarray | Tensor) and values.ndim for values in dataset)
    ):
        dataset = TensorDataset(*(torch.as_tensor(values) for values in dataset))
    if len(dataset) == 0:
        raise InputError(f"{part} is empty.")
    source: Any = DatasetSource(dataset, *layout)
    labels, groups = source.columns(track)
    if isinstance(dataset, TensorDataset) and source.collate_fn is None and not isinstance(source.inputs, str):
        source = TensorSource(dataset.tensors[source.inputs or 0])
    groups = groups if array is None else array
    if groups is not None and len(groups) != len(dataset):
        raise InputError(f"groups of {part} are {len(groups)}, and it has {len(dataset)} items.")
    return source, labels, groups


def _labels(part: str, values: Any) -> Tensor:
    labels = np.asarray([_plain(value) for value in values] if isinstance(values, list) else values)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputTypeError(
            f"labels of {part} must be class numbers from 0, one per item, got {labels.dtype} of shape {labels.shape}."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _number_groups(values: dict[str, Any]) -> tuple[tuple[str, ...] | None, dict[str, Tensor]]:
    """Names of the groups in order, and the groups of each split as numbers: any values may name them."""
    if not values:
        return None, {}
    arrays = {part: np.asarray([_plain(value) for value in found]) for part, found in values.items()}
    names = np.unique(np.concatenate(list(arrays.values())))
    numbered = {part: torch.from_numpy(np.searchsorted(names, found)) for part, found in arrays.items()}
    return tuple(str(name) for name in names), numbered


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
