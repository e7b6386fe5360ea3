"""Labels and groups as files give them: values that stand for "not known", and values that are no plain names."""

from typing import Any

import numpy as np

from icda.errors import InputError

NAMES = ("NAType", "NaTType")  # of pandas, which need not be installed


def is_missing(value: Any) -> bool:
    """Whether one value is missing.

    >>> [is_missing(value) for value in (None, float("nan"), np.float32("nan"), "", 0)]
    [True, True, True, False, False]
    """
    if value is None or type(value).__name__ in NAMES:
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def encode_known(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Each value as its place among the sorted distinct ones, -1 where it is missing; and those distinct ones.

    >>> encode_known(["sea", None, "land", "sea"])
    (array([ 1, -1,  0,  1]), array(['land', 'sea'], dtype=object))
    """
    array = np.asarray(values)
    if array.dtype.kind not in "OfmM":
        distinct, codes = np.unique(array, return_inverse=True)
        return codes, distinct
    known = np.array([not is_missing(value) for value in array.tolist()], dtype=bool)
    distinct, numbers = np.unique(array[known], return_inverse=True)
    codes = np.full(len(array), -1, dtype=np.int64)
    codes[known] = numbers
    return codes, distinct


def known_groups(groups: np.ndarray) -> np.ndarray:
    """Groups as they are or, where some are missing or empty, as objects with None in their place."""
    missing = np.array([is_missing(group) or group == "" for group in groups.tolist()], dtype=bool)
    if not missing.any():
        return groups.astype(str) if groups.dtype == object else groups
    known = groups.astype(object)
    known[missing] = None
    return known


def check_names(labels: Any, called: str) -> None:
    """Refuse labels of which some are missing, or that are texts and numbers mixed: nobody can sort them.

    >>> check_names(["cat", None], "y")
    Traceback (most recent call last):
    icda.errors.InputError: the labels y mix types (NoneType, str): make them all text or all numbers, and leave none empty.
    """
    if str(getattr(labels, "dtype", "object")).startswith(("object", "str", "category")):
        values = np.asarray(labels, dtype=object).ravel().tolist()
        kinds = {type(value) for value in values}
        if len(kinds) > 1 and (any(map(is_missing, values)) or str in kinds):
            named = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InputError(
                f"the labels {called} mix types ({named}): make them all text or all numbers, and leave none empty."
            )


def plain_names(values: np.ndarray) -> np.ndarray:
    """Labels or groups as texts and plain numbers: bytes, dates and decimals, which no model can be saved with, as texts.

    >>> plain_names(np.array([b"cat", b"dog"])).tolist()
    ['cat', 'dog']
    >>> plain_names(np.array(["2020-01-31"], dtype="datetime64[D]")).tolist()
    ['2020-01-31']
    """
    if values.dtype.kind in "mM":
        return values.astype(str)
    if values.dtype.kind not in "OS":
        return values
    cells = [_plain_name(value) for value in values.ravel().tolist()]
    return np.array(cells, dtype=object if values.dtype.kind == "O" else str).reshape(values.shape)


def _plain_name(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if is_missing(value) or isinstance(value, str | int | float | np.generic) else str(value)
