"""A user's features file as a task."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from icda.data.embedding.features import member_names, read_arrays
from icda.data.own.own_data import SPLIT_WORDS, SPLITS, OwnData, own_task
from icda.data.sources import FeatureArray
from icda.data.task import Task
from icda.errors import InputError
from icda.registry import did_you_mean

FEATURES = ("features", "feats", "embeddings", "X", "x")
LABELS = ("y", "labels", "label", "targets", "target")
GROUPS = ("group", "groups")
SPLIT = ("split", "splits")


def features_task(
    path: str | PathLike[str],
    *,
    label_column: str | None = None,
    group_column: str | None = None,
    split_column: str | None = None,
    seed: int = 0,
) -> Task:
    """A task from an .npz file of features (N, A) and labels (N,), such as `icda embed` writes.

    Arrays for groups and splits are taken where there are any. A missing test split takes 20 % of train, a missing
    validation split 10 %. Numbers as labels are named by the file's `class_names`, if it has them.
    """
    path = Path(path).expanduser()
    members = member_names(path)
    names = {
        "features": _pick(path, members, "features", None, FEATURES),
        "labels": _pick(path, members, "labels", label_column, LABELS),
        "groups": _find(path, members, "groups", group_column, GROUPS),
        "splits": _find(path, members, "splits", split_column, SPLIT),
    }
    arrays = read_arrays(path, [name for name in (*names.values(), "class_names") if name is not None])
    features = arrays[str(names["features"])]
    _check_features(path, features)
    texts = {
        what: None if name is None else _texts(path, name, arrays[name], len(features))
        for what, name in names.items()
        if what != "features"
    }
    labels, named = texts["labels"] or [], arrays.get("class_names")
    if named is not None and arrays[str(names["labels"])].dtype.kind in "iu":
        labels = [str(named[int(label)]) if 0 <= int(label) < len(named) else label for label in labels]
    splits = ["train"] * len(features) if texts["splits"] is None else [_split(path, word) for word in texts["splits"]]
    data = OwnData(FeatureArray(features), labels, splits, texts["groups"])
    shape = (features.shape[1],)
    return own_task(path.stem, data, seed, input_kind="features", input_shape=shape, model="mlp")


def _check_features(path: Path, features: np.ndarray) -> None:
    if features.ndim != 2 or features.dtype.kind not in "fiu" or 0 in features.shape:
        raise InputError(f"{path}: features are numbers of shape (N, A), got {features.dtype} {features.shape}.")
    if not np.isfinite(features).all():
        raise InputError(f"{path}: features must be finite, and some are NaN or infinite.")


def _texts(path: Path, name: str, values: np.ndarray, count: int) -> list[str]:
    if values.shape != (count,) or values.dtype.kind not in "iufbUS":
        raise InputError(f"{path}: {name} needs one value per row, {count} in all, got {values.dtype} {values.shape}.")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"{path}: {name} has missing values.")
    return [str(value) for value in values.tolist()]


def _split(path: Path, word: str) -> str:
    split = SPLIT_WORDS.get(word.strip().lower())
    if split is None:
        raise InputError(f"{path}: a split is one of {', '.join(SPLITS)}, got {word!r}.")
    return split


def _find(path: Path, members: list[str], what: str, asked: str | None, usual: tuple[str, ...]) -> str | None:
    if asked is None and not any(name in members for name in usual):
        return None
    return _pick(path, members, what, asked, usual)


def _pick(path: Path, members: list[str], what: str, asked: str | None, usual: tuple[str, ...]) -> str:
    if asked is not None and asked not in members:
        raise InputError(f"{path} has no array {asked!r}: {did_you_mean(asked, members)}It has {', '.join(members)}.")
    found = asked or next((name for name in usual if name in members), None)
    if found is None:
        raise InputError(
            f"{path} has no {what}, expected an array called {', '.join(usual)}; it has {', '.join(members)}."
        )
    return found
