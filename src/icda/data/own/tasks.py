"""A user's own data as a task: a folder of images, a table of images or texts, a file of features."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.embedding.features import member_names
from icda.data.embedding.samples import Columns, Samples, texts_of
from icda.data.generators import generator_for
from icda.data.images import find_unreadable, unreadable
from icda.data.own.feature_files import read_features
from icda.data.own.reading import LAYOUT, read_samples, readable_name
from icda.data.own.table import SPLITS, listed, natural_order
from icda.data.sources import FeatureArray, ImageFiles, TextArray, Tokenise
from icda.data.splits import cut_splits, stratified_split
from icda.data.task import Source, Task
from icda.data.tokens import hash_tokenise
from icda.errors import InputError, MissingFileError


def folder_task(
    path: str | PathLike[str],
    image_size: int = 32,
    seed: int = 0,
    *,
    flip: bool = True,
    skip_unreadable: bool = False,
    allow_outside: bool = False,
) -> Task:
    """A task from images that lie in one folder per class.

    Either `path/train/<class>/...` with, if you like, `validation` (or `val`), `test` and `metadata` beside `train`, or
    just `path/<class>/...`. A missing test split takes 20 % of train, a missing validation split 10 %, by `seed` and
    the same share of every class. Images are squeezed to `image_size`; in training they are shifted by up to an eighth
    of it and, unless `flip` is False, mirrored half of the time. `skip_unreadable` leaves out files that cannot be
    decoded. Links to files outside the folder are refused, unless `allow_outside` says that the folder is trusted.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise MissingFileError(f"{root.absolute()} is not a folder. Expected: {LAYOUT}.")
    samples = read_samples(root, advice="Labels in a table: csv_task.", allow_outside=allow_outside)
    return _image_task(readable_name(root.resolve().name), samples, image_size, seed, flip, skip_unreadable)


def csv_task(
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
    """A task from a table with a header: an image path (relative to the table) or a text, a label and, if known, more.

    Columns that are not named are recognised by their usual names. Groups come from a `group` column, crossed with the
    label where a group holds several classes, or, failing that, from label x `attribute`. `split` says train,
    validation (val), test or metadata, or 0, 1, 2 as in WILDS. `tokenise` turns a list of texts into lists of ids; by
    default words and word pairs are hashed. Missing splits and the other arguments are as in `folder_task`.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not a file: csv_task needs a CSV table with a header line.")
    samples = read_samples(path, columns, allow_outside=allow_outside, whole=True, table=False)
    if samples.kind == "image":
        return _image_task(path.stem, samples, image_size, seed, flip, skip_unreadable)
    texts = TextArray([str(text) for text in samples.inputs], tokenise or hash_tokenise, max_length)
    return own_task(path.stem, texts, samples, seed, input_shape=(max_length,), model="bag_of_words")


def features_task(path: str | PathLike[str], columns: Columns | None = None, *, seed: int = 0) -> Task:
    """A task from an .npz file of features (N, A) and labels (N,), such as `icda embed` writes.

    Arrays for groups and splits are taken where there are any. Numbers as labels are named by the file's `class_names`.
    """
    path, columns = Path(path).expanduser(), columns or Columns()
    if columns.groups is None:
        members = member_names(path)
        columns = replace(columns, groups=next((name for name in ("group", "groups") if name in members), None))
    samples = read_features(path, columns).with_class_names()
    features = samples.features
    if features.ndim != 2 or features.dtype.kind not in "fiu" or 0 in features.shape:
        raise InputError(f"{path}: features are numbers of shape (N, A), got {features.dtype} {features.shape}.")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features must be finite, and some are NaN or infinite.")
    if samples.labels is not None and "" in texts_of(samples.labels):
        raise InputError(f"{path}: labels have missing values.")
    source = FeatureArray(features)
    return own_task(path.stem, source, samples, seed, input_shape=(features.shape[1],), model="mlp")


def _image_task(name: str, samples: Samples, size: int, seed: int, flip: bool, skip_unreadable: bool) -> Task:
    paths, story = [Path(str(path)) for path in samples.inputs], ""
    if skip_unreadable and (broken := find_unreadable(paths, size)):
        unread = set(broken)
        kept = [row for row, path in enumerate(paths) if path not in unread]
        if not kept:
            raise unreadable(broken, "cannot be read as images, and there is no other", "Nothing is left.")
        left_out = listed([path.name for path in broken])
        story = f" {len(broken)} unreadable files were left out: {left_out}."
        warnings.warn(story.strip(), stacklevel=3)
        paths, samples = [paths[row] for row in kept], samples.only(np.array(kept))
    images = ImageFiles(paths, size, flip=flip)
    return own_task(name, images, samples, seed, input_shape=(3, size, size), model="resnet20", story=story)


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
