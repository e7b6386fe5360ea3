"""The annotation files of the GLT benchmark: which image is in which set, with which class and attribute."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icda.data.bias.generalised_tail import ATTRIBUTES
from icda.errors import InputError

SETS = ("train", "val", "test_lt", "test_bl", "test_bbl")
# Of `icda`, not of the benchmark: a file made again names its metadata.
METADATA = "metadata"

Locate = Callable[[str, Mapping[str, Any]], str]  # (key, set) to the image's name below the folder of images


@dataclass(frozen=True)
class AnnotatedSet:
    """Images by name, with their classes (N,) and attributes (N,)."""

    names: list[str]
    targets: Tensor
    attributes: Tensor

    def __len__(self) -> int:
        return len(self.names)

    def take(self, positions: Tensor) -> AnnotatedSet:
        names = [self.names[position] for position in positions.tolist()]
        return AnnotatedSet(names, self.targets[positions], self.attributes[positions])


@dataclass(frozen=True)
class Annotations:
    """All of one annotation file. An image's name is the same in both files of a dataset."""

    path: Path
    class_names: tuple[str, ...]
    sets: dict[str, AnnotatedSet]

    def used(self) -> set[str]:
        return {name for part in self.sets.values() for name in part.names}


def read_annotations(path: Path, locate: Locate) -> Annotations:
    """Read a JSON file with `id2cat`, `cat2id` and the sets train, val, test_lt, test_bl and test_bbl.

    Each set has `label`, `attribute` (0 common, 1 middling, 2 rare) and `frequency`, all by the image's key; what
    `locate` makes of a key is the image's name. Frequency bands are not read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is no JSON file, or it is cut short ({error}): fetch it again.") from error
    missing = [name for name in ("id2cat", *SETS) if name not in content]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}: it is no annotation file of the GLT benchmark.")
    class_names = _class_names(path, content["id2cat"])
    present = [name for name in (*SETS, METADATA) if name in content]
    sets = {name: _read_set(path, name, content[name], len(class_names), locate) for name in present}
    _check_disjoint(path, sets)
    return Annotations(path, class_names, sets)


def write_annotations(
    path: Path, class_names: tuple[str, ...], sets: Mapping[str, AnnotatedSet], frequencies: list[int]
) -> None:
    """Write a file that `read_annotations` reads; `frequencies` is the band (0, 1, 2) of each class."""
    content: dict[str, Any] = {
        "cat2id": {name: str(number) for number, name in enumerate(class_names)},
        "id2cat": {str(number): name for number, name in enumerate(class_names)},
    }
    empty = AnnotatedSet([], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    for name in (*SETS, METADATA):
        part = sets.get(name, empty)
        targets, attributes = part.targets.tolist(), part.attributes.tolist()
        content[name] = {
            "label": dict(zip(part.names, map(str, targets), strict=True)),
            "frequency": {image: frequencies[target] for image, target in zip(part.names, targets, strict=True)},
            "attribute": dict(zip(part.names, attributes, strict=True)),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _class_names(path: Path, names: Mapping[str, str]) -> tuple[str, ...]:
    if sorted(names) != sorted(map(str, range(len(names)))):
        raise InputError(f"{path}: id2cat must number the classes 0..{len(names) - 1}, got {', '.join(sorted(names))}.")
    return tuple(str(names[str(number)]) for number in range(len(names)))


def _read_set(path: Path, name: str, part: Mapping[str, Any], num_classes: int, locate: Locate) -> AnnotatedSet:
    missing = [column for column in ("label", "attribute") if column not in part]
    if missing:
        raise InputError(f"{path}: the set {name} lacks {', '.join(missing)}.")
    keys = list(part["label"])
    without = [key for key in keys if key not in part["attribute"]]
    if without:
        raise InputError(
            f"{path}: the set {name} gives no attribute for {len(without)} images, the first {without[0]}."
        )
    targets = _numbers(path, name, "label", [part["label"][key] for key in keys], num_classes)
    attributes = _numbers(path, name, "attribute", [part["attribute"][key] for key in keys], ATTRIBUTES)
    return AnnotatedSet([locate(key, part) for key in keys], targets, attributes)


def _numbers(path: Path, name: str, column: str, values: list[Any], count: int) -> Tensor:
    try:
        numbers = torch.tensor([int(value) for value in values], dtype=torch.long)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {column} of the set {name} must hold numbers ({error}).") from error
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
        raise InputError(
            f"{path}: {column} of the set {name} must lie in 0..{count - 1}, it reaches from {int(numbers.min())} to "
            f"{int(numbers.max())}."
        )
    return numbers


def _check_disjoint(path: Path, sets: Mapping[str, AnnotatedSet]) -> None:
    owner: dict[str, str] = {}
    for name, part in sets.items():
        for image in part.names:
            if image in owner:
                where = f"twice in {name}" if owner[image] == name else f"in {owner[image]} and in {name}"
                raise InputError(f"{path}: the image {image} is {where}: a test image must not be trained on.")
            owner[image] = name
