"""From a user's labelled samples to a task: class numbers, groups, and the splits that were not given."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.images import NAMED_PATHS, decode_image, find_unreadable, unreadable
from icda.data.sources import ImageFiles
from icda.data.splits import cut_splits, stratified_split
from icda.data.task import Source, Task
from icda.errors import InputError

SPLITS = ("train", "validation", "test", "metadata")
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("metadata", "meta"), "metadata"),
}
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


@dataclass(frozen=True)
class OwnData:
    """Samples as a user names them: entry i of each list belongs to row i of `source`; `splits` are among `SPLITS`."""

    source: Source
    labels: Sequence[str]
    splits: Sequence[str]
    groups: Sequence[str] | None = None
    attributes: Sequence[str] | None = None  # where groups are label x attribute: the attribute of each sample
    skipped: Sequence[Path] = ()  # files that could not be read and were left out


def own_task(name: str, data: OwnData, seed: int, *, input_kind: str, input_shape: tuple[int, ...], model: str) -> Task:
    """Build the task. Splits that were given stay as they are; a missing test or validation split is cut from train."""
    class_names = natural_order(data.labels)
    if len(class_names) < 2:
        raise InputError(f"{name} has one class only, {class_names[0]!r}: a classifier needs at least two.")
    _check_classes(name, data)
    targets = _number(data.labels, class_names)
    group_names = None if data.groups is None else natural_order(data.groups)
    groups = None if data.groups is None or group_names is None else _number(data.groups, group_names)
    attributes = None if data.attributes is None or groups is None else _attribute_of_group(data.attributes, groups)
    strata = targets if groups is None or group_names is None else targets * len(group_names) + groups
    rows, story = _complete(name, data.splits, strata, seed)

    return Task(
        name=name,
        num_classes=len(class_names),
        **cut_splits(data.source, targets, groups, **{part: own for part, own in rows.items() if len(own)}),
        group_names=group_names,
        group_attributes=attributes,
        class_names=class_names,
        input_kind=input_kind,
        input_shape=input_shape,
        default_model=model,
        description=f"{len(data.labels)} samples of {len(class_names)} classes. {story}{_left_out(data.skipped)}",
    )


def without_unreadable(data: OwnData) -> OwnData:
    """The same samples without those whose image files cannot be decoded; a warning names them."""
    images = data.source
    if not isinstance(images, ImageFiles):
        raise InputError("only image files can be left out as unreadable; these samples are no files.")
    broken = set(find_unreadable(images.paths, lambda path: decode_image(path, images.size)))
    kept = [row for row, path in enumerate(images.paths) if path not in broken]
    if not kept:
        raise unreadable(
            list(broken), "cannot be read as images, and there is no other", "Nothing is left to train on."
        )
    skipped = [path for path in images.paths if path in broken]
    if skipped:
        warnings.warn(_left_out(skipped).strip(), stacklevel=3)

    named = {name: getattr(data, name) for name in ("labels", "splits", "groups", "attributes")}
    chosen = {name: None if values is None else [values[row] for row in kept] for name, values in named.items()}
    return replace(data, source=images.only(kept), skipped=skipped, **chosen)  # type: ignore[arg-type]


def _left_out(paths: Sequence[Path]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
    named = ", ".join(path.name for path in paths[:NAMED_PATHS])
    return f" {len(paths)} unreadable files were left out: {named}{more}."


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names, sorted; as numbers if all of them are numbers.

    >>> natural_order(["10", "9", "10"]), natural_order(["10", "9", "cat"])
    (('9', '10'), ('10', '9', 'cat'))
    """
    distinct = sorted(set(names))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def _number(values: Sequence[str], names: tuple[str, ...]) -> Tensor:
    numbers = {name: number for number, name in enumerate(names)}
    return torch.tensor([numbers[value] for value in values], dtype=torch.long)


def _attribute_of_group(attributes: Sequence[str], groups: Tensor) -> tuple[int, ...]:
    numbers = _number(attributes, natural_order(attributes))
    return tuple(int(numbers[(groups == group).nonzero()[0, 0]]) for group in range(int(groups.max()) + 1))


def _check_classes(name: str, data: OwnData) -> None:
    """A class that training never sees cannot be learnt: say so with the class's name and place."""
    trained = {label for label, split in zip(data.labels, data.splits, strict=True) if split == "train"}
    if not trained:
        raise InputError(f"{name} has no training samples: its splits are {', '.join(sorted(set(data.splits)))}.")
    pairs = zip(data.labels, data.splits, strict=True)
    for (label, split), count in Counter(pair for pair in pairs if pair[0] not in trained).items():
        raise InputError(
            f"{name}: class {label!r} is in {split} ({count} samples) but not in train. "
            "Add training samples of it, or take it out."
        )


def _complete(name: str, splits: Sequence[str], strata: Tensor, seed: int) -> tuple[dict[str, Tensor], str]:
    """The rows of every split, and a sentence that says which of them were cut from train."""
    rows = {part: torch.tensor([i for i, s in enumerate(splits) if s == part], dtype=torch.long) for part in SPLITS}
    shares = {"test": TEST_SHARE, "validation": VALIDATION_SHARE}
    missing = {part: share for part, share in shares.items() if len(rows[part]) == 0}
    if not missing:
        return rows, "All splits as given."
    train = rows["train"]
    *parts, rest = stratified_split(strata[train], list(missing.values()), generator_for(seed, "own data"))
    for part, positions in zip(missing, parts, strict=True):
        rows[part] = train[positions]
    rows["train"] = train[rest]
    if len(rows["test"]) == 0:
        raise InputError(f"{name} has too few samples per class ({len(train)} in all) to cut a test split: give one.")
    described = " and ".join(f"{share:.0%} as {part} ({len(rows[part])})" for part, share in missing.items())
    story = f"Of the {len(train)} training samples, data seed {seed} took {described}, stratified by class and group."
    return rows, story
