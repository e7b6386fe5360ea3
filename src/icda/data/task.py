"""What a method sees of data: batches, splits and tasks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from icda.errors import InputError

Inputs = Any  # a tensor, or a dict of tensors (tokenised text)


class Batch(NamedTuple):
    """Samples on their way into a model; `index` says where each stood in its dataset."""

    inputs: Inputs
    targets: Tensor
    groups: Tensor | None
    index: Tensor  # type: ignore[assignment]  # the tuple's own method of that name is not needed

    @property
    def num_samples(self) -> int:
        return int(self.targets.shape[0])


def rows_of(inputs: Inputs, rows: Tensor | slice) -> Inputs:
    """Chosen samples of a batch's inputs; tokenised text comes as a dict of tensors."""
    return {name: value[rows] for name, value in inputs.items()} if isinstance(inputs, dict) else inputs[rows]


class Source(Protocol):
    """Where inputs come from. A generator asks for random augmentation; without one the inputs come as they are."""

    def __len__(self) -> int: ...

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Inputs: ...


@dataclass(frozen=True)
class Split:
    """Labelled samples: row `rows[i]` of `source` carries `targets[i]` and, if known, `groups[i]`.

    Several splits may share one source; `rows` keeps them apart, so a long-tailed subset costs no copy. `memberships`
    (N, M) says which of a task's M overlapping groups each sample belongs to, where a sample may be in several or none;
    they are evaluated and never trained on.
    """

    source: Source
    rows: Tensor
    targets: Tensor
    groups: Tensor | None = None  # -1 where a sample's is not known
    clean_targets: Tensor | None = None  # what the labels were before noise was added; never seen by a method
    memberships: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("targets", "groups", "clean_targets"):
            value = getattr(self, name)
            if value is not None and value.shape != self.rows.shape:
                raise InputError(f"Split expects {name} of shape {tuple(self.rows.shape)}, got {tuple(value.shape)}.")
        shape = () if self.memberships is None else tuple(self.memberships.shape)
        if self.memberships is not None and (len(shape) != 2 or shape[0] != len(self)):
            raise InputError(f"Split expects memberships of shape ({len(self)}, groups), got {shape}.")

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def batch(self, positions: Tensor, generator: torch.Generator | None = None) -> Batch:
        rows = self.rows[positions]
        groups = None if self.groups is None else self.groups[positions]
        return Batch(self.source.fetch(rows, generator), self.targets[positions], groups, positions)

    def subset(self, positions: Tensor) -> Split:
        known = {name: value for name, value in vars(self).items() if name != "source"}
        own: dict[str, Any] = {name: None if value is None else value[positions] for name, value in known.items()}
        return replace(self, **own)

    def without_groups(self) -> Split:
        """The same samples; whoever is given them cannot know the groups."""
        return replace(self, groups=None, memberships=None)


@dataclass(frozen=True)
class Task:
    """A learning problem: its splits, its classes, and a hash of what was chosen for it.

    `input_kind` is "image", "text" or "features"; `input_shape` is the shape of one input, (channels, height, width)
    for images. `metadata` is the small clean set that meta-learning methods use. `group_attributes` names the attribute
    value (a number) behind each group where groups are class x attribute: methods that compare domains take it as the
    domain. `membership_names` are the names of overlapping groups, one for each column of a split's `memberships`.
    """

    name: str
    num_classes: int
    train: Split
    validation: Split | None
    test: Split
    metadata: Split | None = None
    group_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] = ()
    input_kind: str = "image"
    input_shape: tuple[int, ...] = ()
    default_model: str = ""
    description: str = ""
    group_attributes: tuple[int, ...] | None = None
    membership_names: tuple[str, ...] | None = None
    class_counts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise InputError(f"task {self.name!r} has {self.num_classes} class; a classifier needs at least two.")
        for name, split in self.splits().items():
            if len(split) == 0:
                raise InputError(f"task {self.name!r}: the {name} split is empty.")
            low, high, last = int(split.targets.min()), int(split.targets.max()), self.num_classes - 1
            if low < 0 or high > last:
                raise InputError(f"task {self.name!r}: {name} has label {low if low < 0 else high}, outside 0..{last}.")
            columns = 0 if split.memberships is None else int(split.memberships.shape[1])
            if columns and columns != len(self.membership_names or ()):
                raise InputError(
                    f"task {self.name!r}: the {name} split has {columns} overlapping groups and {self.membership_names} "
                    "names them: give one name for each."
                )
        counts = torch.bincount(self.train.targets, minlength=self.num_classes)
        if (counts == 0).any():
            absent = [self.class_name(c) for c in (counts == 0).nonzero().flatten().tolist()]
            raise InputError(
                f"task {self.name!r}: no training sample for class {', '.join(absent)}. "
                "Drop the class from the other splits or add samples to train."
            )
        object.__setattr__(self, "class_counts", counts)
        if not self.class_names:
            object.__setattr__(self, "class_names", tuple(str(c) for c in range(self.num_classes)))
        if self.group_attributes is not None and len(self.group_attributes) != self.num_groups:
            raise InputError(
                f"task {self.name!r} names the attributes of {len(self.group_attributes)} groups and has {self.num_groups}."
            )

    @cached_property  # not sooner: a task that is only made to be stripped of its groups must not read them
    def data_hash(self) -> str:
        """SHA-256 over which rows were taken, with which labels and groups: the part of a task that a seed decides."""
        digest = hashlib.sha256()
        for name, split in self.splits().items():
            digest.update(name.encode())
            for value in (split.rows, split.targets, split.groups):
                digest.update(b"-" if value is None else value.to(torch.int64).contiguous().numpy().tobytes())
            if split.memberships is not None:
                digest.update(b"memberships" + split.memberships.to(torch.uint8).contiguous().numpy().tobytes())
            digest.update(str(getattr(split.source, "fingerprint", "")).encode())
        return digest.hexdigest()

    def splits(self) -> dict[str, Split]:
        named = {"train": self.train, "validation": self.validation, "test": self.test, "metadata": self.metadata}
        return {name: split for name, split in named.items() if split is not None}

    def without_groups(self) -> Task:
        """The task as a training sees it that is given no attributes: only the test split keeps its groups."""
        hidden = {name: split.without_groups() for name, split in self.splits().items() if name != "test"}
        return replace(self, **hidden)  # type: ignore[arg-type]

    def class_name(self, index: int) -> str:
        return self.class_names[index] if self.class_names else str(index)

    def group_domains(self) -> Tensor:
        """The domain (G,) of each group: its attribute, or its own number where groups are not class x attribute."""
        return torch.tensor(range(self.num_groups) if self.group_attributes is None else self.group_attributes)

    @property
    def num_groups(self) -> int:
        return len(self.group_names) if self.group_names else 0
