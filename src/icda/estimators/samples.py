"""scikit-learn's checks of samples, for arrays in memory and for mapped files alike, and the prior that `fit` is given."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from icda.data.missing import check_names, encode_known
from icda.errors import InputError
from icda.heads.problem import Problem, rebalance
from icda.heads.rows import Rows, StoredRows, is_large_on_disk, refuse_sparse
from icda.statistics.checks import check_flags, check_number

EXTREME = 1e4  # beyond, features are divided by their largest value for the solver
WILD = 10.0  # how many times larger or further off metadata may be before it is said


def check_samples(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Dense features, in single or double precision, and labels."""
    refuse_sparse(X, "X", type(estimator).__name__)
    check_names(y, "y")
    return validate_data(estimator, X, y, dtype=[np.float64, np.float32], order="C")


def check_rows(estimator: Any, X: Any, y: Any) -> tuple[Rows, np.ndarray]:
    """Features and labels ready for a fit. A large mapped file stays on disk and is checked chunk by chunk."""
    if not is_large_on_disk(X):
        X, y = check_samples(estimator, X, y)
        return torch.from_numpy(X if X.flags.writeable else X.copy()), y
    check_names(y, "y")
    y = validate_data(estimator, "no_validation", y)
    check_consistent_length(X, y)
    return check_stored(estimator, X, reset=True), y


def check_weights(estimator: Any, sample_weight: Any, y: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights (N,), times those of the classes where there are any, and which are used; each class needs one that is."""
    weights = _check_sample_weight(sample_weight, y, dtype=dtype, ensure_non_negative=True)
    weights = weights * compute_sample_weight(getattr(estimator, "class_weight", None), y).astype(dtype)
    used = weights > 0  # a sample that counts nothing is as if it were not there
    if len(np.unique(y[used])) < len(estimator.classes_):
        raise InputError(f"{type(estimator).__name__}: a class has no sample with a positive sample_weight.")
    return weights, used


def check_metadata(estimator: Any, X_meta: Any, y_meta: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features of metadata, as many as those of the training samples, and their classes as places in `classes_`."""
    owner = type(estimator).__name__
    refuse_sparse(X_meta, "X_meta", owner)
    X_meta = check_array(X_meta, dtype=dtype, order="C", input_name="X_meta", estimator=estimator)
    if X_meta.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"X_meta has {X_meta.shape[1]} features, but {owner} is expecting {estimator.n_features_in_} features as input."
        )
    y_meta = column_or_1d(y_meta)
    check_consistent_length(X_meta, y_meta)
    unknown = y_meta[~np.isin(y_meta, estimator.classes_)]
    if len(unknown):
        raise InputError(f"y_meta holds classes that y does not: {', '.join(map(str, np.unique(unknown)))}.")
    return X_meta, np.searchsorted(estimator.classes_, y_meta)


def encode_classes(estimator: Any, y: np.ndarray) -> np.ndarray:
    """The class of each label as its place in `classes_`, which is set here; there must be two classes at least."""
    check_classification_targets(y)
    estimator.classes_, codes = np.unique(y, return_inverse=True)
    if len(estimator.classes_) < 2:
        only = estimator.classes_.tolist()[0]
        raise InputError(f"{type(estimator).__name__} needs samples of at least 2 classes, got one class: {only!r}.")
    return codes


def check_groups(groups: Any, num_samples: int, name: str = "groups") -> np.ndarray:
    """Groups (N,), or several attributes (N, M); None, NaN and pandas.NA say that a sample's group is not known."""
    values = np.asarray(groups)
    if values.dtype.kind in "OU" and not isinstance(groups, np.ndarray):
        values = np.asarray(groups, dtype=object)  # NumPy would make texts of a None among texts
    if values.ndim not in (1, 2) or len(values) != num_samples:
        shape = np.shape(groups)
        raise InputError(f"{name} must have one entry per sample, expected shape ({num_samples},), got {shape}.")
    for column in values.reshape(num_samples, -1).T:
        try:
            known = encode_known(column)[1]
        except TypeError as error:
            raise InputError(f"{name} cannot be told apart ({error}): give numbers or texts.") from error
        if not len(known):
            raise InputError(f"{name} has no known value: name the group of some samples, or leave {name} out.")
    return values


def encode_groups(groups: Any, num_samples: int, name: str = "groups") -> np.ndarray:
    """Each sample's group as its place among the sorted groups; every group must be known."""
    values = check_groups(groups, num_samples, name)
    codes = encode_known(values)[0] if values.ndim == 1 else np.full(1, -1)
    if (codes < 0).any():
        raise InputError(f"{name} must be known for every sample here, one each: some are missing.")
    return codes


def check_settings(
    estimator: Any,
    numbers: tuple[str, ...],
    whole: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    **choices: Sequence[Any],
) -> None:
    """Settings of an estimator: numbers, not negative, with C and rates positive; whole numbers, truth values, choices."""
    for name, known in choices.items():
        if getattr(estimator, name) not in known:
            raise InputError(f"{name} must be one of {', '.join(map(str, known))}, got {getattr(estimator, name)!r}.")
    owner = type(estimator).__name__
    for name in numbers:
        value = getattr(estimator, name)
        check_number(value, name, owner, 0)
        if value == 0 and name in ("C", "learning_rate"):
            raise InputError(f"{owner} expects {name} to be positive, got {value}.")
    for name in whole:
        if getattr(estimator, name) is not None or name != "random_state":
            check_number(getattr(estimator, name), name, owner, whole=True)
    check_flags(estimator, *flags)


def solver_unit(features: Rows) -> float:
    """What features are divided by for the solver: 1, or a power of two near the largest value if that is extreme.

    Features of 1e8 have slopes whose squares leave nothing of the rest in float32, and L-BFGS stops early without a
    word. Dividing all by one number, with the weight decay divided by its square, has the same optimum and the same
    angles; a power of two rounds nothing. Rows on disk stay as they are.

    >>> solver_unit(torch.tensor([[3.0, -9000.0]])), solver_unit(torch.tensor([[1e8]]))
    (1.0, 134217728.0)
    """
    if not isinstance(features, torch.Tensor) or features.numel() == 0:
        return 1.0
    largest = float(max(-features.min(), features.max()))
    return 1.0 if largest < EXTREME else 2.0 ** min(math.ceil(math.log2(largest)), 500)  # its square is finite


def check_stored(estimator: Any, X: np.ndarray, *, reset: bool) -> StoredRows:
    """The rows of a mapped file, with the number of features checked and every value finite."""
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    rows = StoredRows(X)
    for _, block in rows.chunks():
        assert_all_finite(block.numpy(), estimator_name=type(estimator).__name__, input_name="X")
    return rows


def warn_of_other_scale(X: np.ndarray, X_meta: np.ndarray, owner: str) -> None:
    """Metadata that were not scaled as the training data were, as happens in a Pipeline."""
    mean, deviation = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
    other, other_deviation = X_meta.mean(0, dtype=np.float64), X_meta.std(0, dtype=np.float64)
    usable = (deviation > 0) & (other_deviation > 0)
    if not usable.any():
        return
    ratio = other_deviation[usable] / deviation[usable]
    off = np.abs(other - mean)[usable] / np.maximum(deviation, other_deviation)[usable]
    if WILD > float(np.median(ratio)) > 1 / WILD and float(np.median(off)) < WILD:
        return
    warnings.warn(
        f"{owner}: X_meta has another scale than X (half of the features spread {np.median(ratio):.3g} times as widely). A "
        "Pipeline scales X only: give it transform_input=['X_meta'] (with metadata routing on), or scale X_meta yourself.",
        UserWarning,
        stacklevel=4,
    )


def check_prior(estimator: Any, attributes: Any, log_prior: Any, num_samples: int) -> bool:
    """Whether a prior is given: `attributes` (N,), of any values, or `log_prior` (N, C)."""
    if attributes is not None and log_prior is not None:
        owner = type(estimator).__name__
        raise InputError(f"{owner} got both attributes and log_prior: give the one that holds the prior.")
    shape = np.shape(attributes if log_prior is None else log_prior)
    if attributes is not None and shape != (num_samples,):
        raise InputError(f"attributes must have one entry per sample, expected shape ({num_samples},), got {shape}.")
    if log_prior is not None:
        if shape != (wanted := (num_samples, len(estimator.classes_))):
            raise InputError(
                f"log_prior must have one row per sample and one column per class, expected shape {wanted}, got {shape}."
            )
        if not np.isfinite(np.asarray(log_prior, dtype=np.float64)).all():
            raise InputError("log_prior holds NaN or infinite values: a probability of zero has no margin.")
    return attributes is not None or log_prior is not None


def put_prior(estimator: Any, problem: Problem, attributes: Any, log_prior: Any, used: np.ndarray) -> Problem:
    """The problem of the `used` samples with their prior."""
    if log_prior is not None:
        given = np.asarray(log_prior, dtype=np.float64)[used]
        return replace(problem, log_prior=torch.from_numpy(given).to(problem.weights))
    estimator.attributes_ = np.unique(np.asarray(attributes)[used], return_inverse=True)[1]
    return rebalance(problem, torch.from_numpy(estimator.attributes_), "prior")
