"""A user's own data as a task: a folder of images, a table of images or texts, a file of features."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from icda.data.embedding.features import member_names
from icda.data.embedding.samples import LAYOUT, Columns, Samples, read_samples, readable_name
from icda.data.own.feature_files import read_feature_file
from icda.data.own.own_data import SPLIT_WORDS, SPLITS, OwnData, own_task, without_unreadable
from icda.data.sources import FeatureArray, ImageFiles, TextArray, Tokenise
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
) -> Task:
    """A task from images that lie in one folder per class.

    Either `path/train/<class>/...` with, if you like, `validation` (or `val`), `test` and `metadata` beside `train`, or
    just `path/<class>/...`. A missing test split takes 20 % of train, a missing validation split 10 %, by `seed` and
    the same share of every class; the task's `description` says so. Images are squeezed to `image_size`; in training
    they are shifted by up to an eighth of it and, unless `flip` is False, mirrored half of the time. With
    `skip_unreadable` files that cannot be decoded are left out, and the `description` names them.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise MissingFileError(f"{root.absolute()} is not a folder. Expected: {LAYOUT}.")
    samples = read_samples(root, advice="Labels in a table: csv_task.")
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

    Columns that are not named are recognised by their usual names. Groups come from a `group` column or, failing that,
    from label x `attribute`. `split` says train, validation (val), test or metadata, or 0, 1, 2 as in WILDS; a missing
    test split takes 20 % of train and a missing validation split 10 %, by `seed`; `description` says so. `tokenise`
    turns a list of texts into lists of ids; by default words and word pairs are hashed. Images must lie in the table's
    folder or below, unless `allow_outside` says that the table is trusted; `skip_unreadable` leaves out those that
    cannot be decoded.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise MissingFileError(f"{path.absolute()} is not a file: csv_task needs a CSV table with a header line.")
    samples = read_samples(path, columns, allow_outside=allow_outside, whole=True)
    if samples.kind == "image":
        return _image_task(path.stem, samples, image_size, seed, flip, skip_unreadable)
    texts = TextArray([str(text) for text in samples.inputs], tokenise or hash_tokenise, max_length)
    data = _own_data(texts, samples)
    return own_task(path.stem, data, seed, input_kind="text", input_shape=(max_length,), model="bag_of_words")


def features_task(path: str | PathLike[str], columns: Columns | None = None, *, seed: int = 0) -> Task:
    """A task from an .npz file of features (N, A) and labels (N,), such as `icda embed` writes.

    Arrays for groups and splits are taken where there are any. A missing test split takes 20 % of train, a missing
    validation split 10 %. Numbers as labels are named by the file's `class_names`, if it has them.
    """
    path, columns = Path(path).expanduser(), columns or Columns()
    if columns.groups is None:
        members = member_names(path)
        columns = replace(columns, groups=next((name for name in ("group", "groups") if name in members), None))
    found = read_feature_file(path, columns)
    features = found.features
    if features.ndim != 2 or features.dtype.kind not in "fiu" or 0 in features.shape:
        raise InputError(f"{path}: features are numbers of shape (N, A), got {features.dtype} {features.shape}.")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features must be finite, and some are NaN or infinite.")
    labels, named = _texts(path, "labels", found.labels), found.class_names
    if named is not None:
        labels = [str(named[int(label)]) if 0 <= int(label) < len(named) else label for label in labels]
    groups = None if found.groups is None else _texts(path, "groups", found.groups)
    splits = ["train"] * len(features)
    if found.splits is not None:
        words = [word.strip().lower() for word in _texts(path, "splits", found.splits)]
        if strange := [word for word in words if word not in SPLIT_WORDS]:
            raise InputError(f"{path}: a split is one of {', '.join(SPLITS)}, got {strange[0]!r}.")
        splits = [SPLIT_WORDS[word] for word in words]
    data = OwnData(FeatureArray(features), labels, splits, groups)
    return own_task(path.stem, data, seed, input_kind="features", input_shape=(features.shape[1],), model="mlp")


def _image_task(name: str, samples: Samples, size: int, seed: int, flip: bool, skip_unreadable: bool) -> Task:
    data = _own_data(ImageFiles([Path(path) for path in samples.inputs], size, flip=flip), samples)
    if skip_unreadable:
        data = without_unreadable(data)
    return own_task(name, data, seed, input_kind="image", input_shape=(3, size, size), model="resnet20")


def _own_data(source: Source, samples: Samples) -> OwnData:
    assert samples.labels is not None
    splits = ["train"] * len(samples) if samples.splits is None else samples.splits
    return OwnData(source, samples.labels, splits, samples.groups, samples.attributes)


def _texts(path: Path, role: str, values: np.ndarray) -> list[str]:
    if values.dtype.kind not in "iufbUS":
        raise InputError(f"{path}: {role} are numbers or texts, got {values.dtype}.")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"{path}: {role} have missing values.")
    return [str(value) for value in values.tolist()]
