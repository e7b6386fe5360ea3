"""A user's own data as a task: a folder of images, a table of images or texts, a file of features."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.data.embedding.samples import Columns, Samples, texts_of
from icda.data.generators import generator_for
from icda.data.images import find_unreadable, unreadable
from icda.data.own.feature_files import Archive
from icda.data.own.reading import read_samples, readable_name
from icda.data.own.table import GROUP, SPLITS, listed, natural_order
from icda.data.sources import FeatureArray, ImageFiles, TextArray, Tokenise
from icda.data.splits import cut_splits, stratified_split
from icda.data.task import Source, Task
from icda.data.tokens import hash_tokenise
from icda.errors import InputError


def data_task(
    path: str | PathLike[str],
    columns: Columns | None = None,
    *,
    image_size: int = 32,
    tokenise: Tokenise | None = None,
    max_length: int = 128,
    seed: int = 0,
    flip: bool = True,
    skip_unreadable: bool = False,
    allow_outside: bool = False,
) -> Task:
    """A task from a folder of images, a table of images or texts, or an .npz of features, such as `icda embed` writes.

    A folder has one folder per class: `path/train/<class>/...` with, if you like, `validation` (or `val`), `test` and
    `metadata` beside `train`, or just `path/<class>/...`. A table has a header: an image path (relative to the table) or a
    text, a label and, if known, more. Columns and arrays that are not named are recognised by their usual names. Groups
    come from a `group` column, crossed with the label where a group holds several classes, or, failing that, from label x
    `attribute`. `split` says train, validation (val), test or metadata, or 0, 1, 2 as in WILDS. A missing test split takes
    20 % of train, a missing validation split 10 %, by `seed` and the same share of every class.

    Images are squeezed to `image_size`; in training they are shifted by up to an eighth of it and, unless `flip` is False,
    mirrored half of the time. `skip_unreadable` leaves out files that cannot be decoded. `tokenise` turns a list of texts
    into lists of ids; by default words and word pairs are hashed. Links and paths to files outside the folder are refused,
    unless `allow_outside` says that it is trusted.
    """
    path, asked = Path(path).expanduser(), columns or Columns()
    if path.suffix.lower() in (".npy", ".parquet"):
        raise InputError(
            f"{path}: a network is trained on an .npz of features, or `icda fit` fits a head to this file."
        )
    if path.suffix.lower() == ".npz" and asked.groups is None:
        asked = replace(asked, groups=Archive(path).find("group", None, (*GROUP, "groups")))
    advice = "Labels may also stand in a table."
    samples = read_samples(path, asked, advice=advice, allow_outside=allow_outside, whole=True, table=False)
    samples = samples.with_class_names()
    name = readable_name(path.resolve().name) if path.is_dir() else path.stem
    if samples.features is not None:
        source = FeatureArray(_checked(samples, path))
        return own_task(name, source, samples, seed, input_shape=(source.features.shape[1],), model="mlp")
    if samples.kind == "text":
        texts = TextArray(samples.inputs, tokenise or hash_tokenise, max_length)
        return own_task(name, texts, samples, seed, input_shape=(max_length,), model="bag_of_words")
    samples, story = _readable(samples, image_size) if skip_unreadable else (samples, "")
    images, shape = ImageFiles(samples.inputs, image_size, flip=flip), (3, image_size, image_size)
    return own_task(name, images, samples, seed, input_shape=shape, model="resnet20", story=story)


def csv_task(path: str | PathLike[str], columns: Columns | None = None, **options: Any) -> Task:
    """`data_task` of a table."""
    if Path(path).expanduser().is_dir():
        raise InputError(f"{path} is a folder, expected a .csv: folder_task reads folders of images.")
    return data_task(path, columns, **options)


def folder_task(path: str | PathLike[str], image_size: int = 32, seed: int = 0, **options: bool) -> Task:
    """`data_task` of a folder of images."""
    if Path(path).expanduser().is_file():
        raise InputError(f"{path} is a file, expected a folder of images: csv_task reads tables.")
    return data_task(path, image_size=image_size, seed=seed, **options)  # type: ignore[arg-type]


def _checked(samples: Samples, path: Path) -> np.ndarray:
    features: np.ndarray = samples.features
    if features.ndim != 2 or features.dtype.kind not in "fiu" or 0 in features.shape:
        raise InputError(f"{path}: features are numbers of shape (N, A), got {features.dtype} {features.shape}.")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features must be finite, and some are NaN or infinite.")
    if "" in texts_of(samples.labels):
        raise InputError(f"{path}: labels have missing values.")
    return features


def _readable(samples: Samples, size: int) -> tuple[Samples, str]:
    """The samples whose images can be decoded, and a sentence about the others."""
    broken = find_unreadable(samples.inputs, size)
    unread = set(broken)
    kept = [row for row, path in enumerate(samples.inputs) if path not in unread]
    if not broken:
        return samples, ""
    if not kept:
        raise unreadable(broken, "cannot be read as images, and there is no other", "Nothing is left.")
    story = f" {len(broken)} unreadable files were left out: {listed([path.name for path in broken])}."
    warnings.warn(story.strip(), stacklevel=3)
    return samples.only(np.array(kept)), story


TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


def own_task(
    name: str, source: Source, samples: Samples, seed: int, *, input_shape: tuple[int, ...], model: str, story: str = ""
) -> Task:
    """The task of labelled samples, whose rows are those of `source`; a missing test or validation split is cut."""
    labels, splits = texts_of(samples.labels), samples.split_names or ["train"] * len(samples)
    class_names = natural_order(labels)
    if len(class_names) < 2:
        raise InputError(f"{name} has one class only, {class_names[0]!r}: a classifier needs at least two.")
    _check_classes(name, labels, splits)
    targets, groups, group_names, attributes = _number(labels, class_names), None, None, None
    strata = targets
    named, named_attributes = samples.crossed()
    if named is not None:
        group_names = natural_order(group for group in named if group)
        groups = _number(named, ("", *group_names)) - 1  # -1: not known
        strata = targets * (len(group_names) + 1) + groups + 1
        if named_attributes is not None:
            numbers = _number(named_attributes, natural_order(named_attributes))
            attributes = tuple(int(numbers[(groups == own).nonzero()[0, 0]]) for own in range(len(group_names)))
    rows, cut = _complete(name, splits, strata, seed)
    return Task(
        name=name,
        num_classes=len(class_names),
        **cut_splits(source, targets, groups, **{part: own for part, own in rows.items() if len(own)}),
        group_names=group_names,
        group_attributes=attributes,
        class_names=class_names,
        input_kind="features" if samples.inputs is None else samples.kind,
        input_shape=input_shape,
        default_model=model,
        description=f"{len(labels)} samples of {len(class_names)} classes. {cut}{story}",
    )


def _number(values: Sequence[str], names: tuple[str, ...]) -> Tensor:
    numbers = {name: number for number, name in enumerate(names)}
    return torch.tensor([numbers[value] for value in values], dtype=torch.long)


def _check_classes(name: str, labels: Sequence[str], splits: Sequence[str]) -> None:
    """A class that training never sees cannot be learnt: say so with the class's name and place."""
    pairs = list(zip(labels, splits, strict=True))
    trained = {label for label, split in pairs if split == "train"}
    if not trained:
        raise InputError(f"{name} has no training samples: its splits are {', '.join(sorted(set(splits)))}.")
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
