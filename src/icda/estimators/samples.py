"""scikit-learn's checks of samples, for arrays in memory and for mapped files alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from icda.errors import InputError
from icda.linear.rows import Rows, StoredRows, is_large_on_disk


def check_samples(estimator: Any, X: Any, y: Any) -> tuple[Rows, np.ndarray]:
    """Features and labels ready for a fit. A large mapped file stays on disk and is checked chunk by chunk."""
    if is_large_on_disk(X):
        y = validate_data(estimator, "no_validation", y)
        check_consistent_length(X, y)
        return check_stored(estimator, X, reset=True), y
    X, y = validate_data(estimator, X, y, dtype=[np.float64, np.float32], order="C")
    return torch.from_numpy(X if X.flags.writeable else X.copy()), y


def encode_classes(estimator: Any, y: np.ndarray) -> np.ndarray:
    """The class of each label as its place in `classes_`, which is set here; there must be two classes at least."""
    check_classification_targets(y)
    estimator.classes_, codes = np.unique(y, return_inverse=True)
    if len(estimator.classes_) < 2:
        raise InputError(
            f"{type(estimator).__name__} needs samples of at least 2 classes, got one class: {estimator.classes_[0]!r}."
        )
    return codes


def check_stored(estimator: Any, X: np.ndarray, *, reset: bool) -> StoredRows:
    """The rows of a mapped file, with the number of features checked and every value finite."""
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    rows = StoredRows(X)
    for _, block in rows.chunks():
        assert_all_finite(block.numpy(), estimator_name=type(estimator).__name__, input_name="X")
    return rows
