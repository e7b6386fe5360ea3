"""What the audit takes in: checked, numbered and scaled."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y
from torch import Tensor

from icda.data.missing import check_names
from icda.errors import InputError, InputTypeError
from icda.heads.rows import BLOCK, feature_moments, refuse_sparse

# Weight decay a feature: a thousandth of the squared length A of a standardised sample, so that the same head comes out
# however wide the encoder is. Ours: looked at on Waterbirds (A = 2048) and digits (A = 64).
DECAY = 1e-3


def check_inputs(
    X: Any, y: Any, class_names: Any, sample_names: Any, folds: int
) -> tuple[Tensor, Tensor, list[str], list[str]]:
    """Standardised features (N, A) in float32, targets (N,), and names of classes and samples.

    What cannot be audited is refused, as scikit-learn would.
    """
    check_folds(folds)
    refuse_sparse(X, "X", "audit")
    for name, given in (("class_names", class_names), ("sample_names", sample_names)):
        if given is not None and not hasattr(given, "__len__"):
            raise InputTypeError(f"audit expects {name} as a list, got {given!r}.")
    check_names(y, "y")
    try:
        X, y = check_X_y(X, y, dtype="numeric", estimator="audit")
        check_classification_targets(y)
    except ValueError as error:  # scikit-learn says what is wrong; it is the user's to repair
        raise InputError(str(error)) from error
    check_folds(folds, len(y))
    classes, codes = np.unique(y, return_inverse=True)
    check_class_counts(classes, np.bincount(codes))
    names = _class_names(classes, class_names)
    if isinstance(sample_names, str) or (sample_names is not None and len(sample_names) != len(y)):
        raise InputError(f"sample_names must have one entry per sample, expected {len(y)}, got {len(sample_names)}.")
    samples = [str(name) for name in (range(len(y)) if sample_names is None else sample_names)]
    targets = torch.from_numpy(codes.astype(np.int64))
    return torch.from_numpy(standardise(X)), targets, names, samples


def check_folds(folds: int, samples: int | None = None) -> None:
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise InputError(f"folds must be a whole number of at least 2, got {folds!r}.")
    if samples is not None and folds > samples:
        raise InputError(f"{samples} samples cannot be cut into {folds} folds: ask for fewer; 5 is usual.")


def check_class_counts(classes: np.ndarray, counts: np.ndarray) -> None:
    """Refuse a single class, and classes of a single sample."""
    if len(classes) < 2:
        raise InputError(f"audit needs samples of at least 2 classes, got one class: {str(classes[0])!r}.")
    if (counts < 2).any():
        alone = ", ".join(str(label) for label in classes[counts < 2][:10])
        raise InputError(
            f"audit needs at least 2 samples per class, but there is only one of {alone}: a head that has not seen the "
            "sample would not know its class. Leave such classes out, or merge them."
        )


def standardise(X: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and deviation 1 in float32; a constant column becomes 0.

    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float16)).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    mean, deviation = feature_moments(X)
    scaled = np.zeros(X.shape, np.float32)
    for start in range(0, len(X), BLOCK):
        span = slice(start, start + BLOCK)
        np.divide(X[span] - mean, deviation, out=scaled[span], where=deviation > 0, casting="same_kind")
    return scaled


def _class_names(classes: np.ndarray, given: Sequence[object] | None) -> list[str]:
    if given is None:
        return [str(label) for label in classes]
    names = [str(name) for name in given]
    if classes.dtype.kind in "iub" and int(classes[0]) >= 0 and int(classes[-1]) < len(names):
        return [names[int(label)] for label in classes]  # names by number; a number may be absent
    if len(names) != len(classes):
        raise InputError(f"class_names has {len(names)} names, but y has {len(classes)} classes: give one per class.")
    return names


def scarce_notes(names: list[str], counts: np.ndarray, folds: int) -> list[str]:
    """A sentence about classes with fewer samples than folds, if there are any."""
    scarce = np.flatnonzero(counts < folds)
    if not len(scarce):
        return []
    shown = ", ".join(f"{names[k]} ({counts[k]})" for k in scarce[:10]) + (" ..." if len(scarce) > 10 else "")
    return [
        f"Fewer samples than the {folds} folds: {shown}. Each is judged by heads that saw all others of its class but "
        "one at a time; such few samples make weak evidence."
    ]
