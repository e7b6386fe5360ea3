"""Single figures of a split: per class, per group, calibration, and the worst group as a score of scikit-learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import OperationError
from icda.functional.confusion import count_confusions

FEW, MANY = 20, 100  # training samples of a class
FEWEST = 5  # samples below which a group's share of right answers says nothing


def confusion_matrix(predictions: Tensor, targets: Tensor, num_classes: int) -> list[list[int]]:
    """How often each class (row) was taken for each class (column).

    >>> confusion_matrix(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=2)
    [[1, 1], [0, 1]]
    """
    return count_confusions(predictions, targets, num_classes).tolist()


def macro_precision(predictions: Tensor, targets: Tensor, num_classes: int) -> float:
    """The mean over classes of "how many of those called c are c".

    A class that is never predicted counts as 0; a class that is neither predicted nor present is left out.

    >>> macro_precision(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=2)
    0.75
    """
    confusion = count_confusions(predictions, targets, num_classes)
    called, present = confusion.sum(dim=0), confusion.sum(dim=1)
    precision = (confusion.diag() / called).nan_to_num()  # a class that is never predicted has 0 / 0
    return float((precision / ((called > 0) | (present > 0)).sum()).sum())


def per_class_accuracy(confusion: Sequence[Sequence[int]]) -> list[float | None]:
    """The share of each class that is recognised; None for a class without samples.

    >>> per_class_accuracy([[1, 1, 0], [0, 4, 0], [0, 0, 0]])
    [0.5, 1.0, None]
    """
    totals = [sum(row) for row in confusion]
    return [row[c] / total if total else None for c, (row, total) in enumerate(zip(confusion, totals, strict=True))]


def mean_known(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there, None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def worst_known(values: Sequence[float | None]) -> float | None:
    """The smallest of the values that are there, None when none is."""
    return min((value for value in values if value is not None), default=None)


def band_accuracy(
    accuracies: Sequence[float | None], train_class_counts: Sequence[int] | Tensor | None
) -> dict[str, float | None]:
    """The mean accuracy of classes with many, a medium number of, and few training samples.

    "Many" is more than 100, "few" is fewer than 20, as in Liu et al., "Large-Scale Long-Tailed
    Recognition in an Open World", CVPR 2019. A band without classes is None, and so are all when no counts are given.

    >>> band_accuracy([0.9, 0.6, 0.4, 0.1], train_class_counts=[500, 100, 20, 5])
    {'many_accuracy': 0.9, 'medium_accuracy': 0.5, 'few_accuracy': 0.1}
    """
    if train_class_counts is None:
        return dict.fromkeys(("many_accuracy", "medium_accuracy", "few_accuracy"))
    bands: dict[str, list[float | None]] = {"many_accuracy": [], "medium_accuracy": [], "few_accuracy": []}
    for accuracy, count in zip(accuracies, torch.as_tensor(train_class_counts).tolist(), strict=True):
        band = "many" if count > MANY else "few" if count < FEW else "medium"
        bands[f"{band}_accuracy"].append(accuracy)
    return {name: mean_known(members) for name, members in bands.items()}


def per_group_accuracy(correct: Tensor, groups: Tensor, num_groups: int) -> list[float | None]:
    """The share of each group that is right; None for a group without samples.

    >>> per_group_accuracy(torch.tensor([True, False, True]), torch.tensor([0, 0, 2]), num_groups=3)
    [0.5, None, 1.0]
    """
    totals = torch.bincount(groups, minlength=num_groups).tolist()
    hits = torch.bincount(groups[correct], minlength=num_groups).tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def per_membership_accuracy(correct: Tensor, memberships: Tensor) -> list[float | None]:
    """The share of each overlapping group that is right; None for a group without samples.

    `memberships` (N, M) says which groups a sample is in: each of several counts it, and none may. This is how WILDS
    judges CivilComments.

    >>> memberships = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    >>> per_membership_accuracy(torch.tensor([True, False, True]), memberships)
    [0.5, 1.0, None]
    """
    totals = memberships.sum(dim=0).tolist()
    hits = memberships[correct].sum(dim=0).tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def train_weighted_accuracy(
    accuracies: Sequence[float | None], train_group_counts: Sequence[int] | Tensor | None
) -> float | None:
    """Group accuracies weighted by each group's share of the training set.

    This is the "average accuracy" of group DRO, WILDS and LISA: the accuracy on a test set mixed like the training set.
    A group absent from the split has no accuracy, so the shares of the others are scaled up to sum to one. None without
    counts, and when no group of the split was trained on.

    >>> train_weighted_accuracy([0.5, 1.0, None], train_group_counts=[30, 10, 60])
    0.625
    """
    if train_group_counts is None:
        return None
    counts = torch.as_tensor(train_group_counts).tolist()
    known = [(accuracy, n) for accuracy, n in zip(accuracies, counts, strict=True) if accuracy is not None]
    total = sum(n for _, n in known)
    return sum(accuracy * n for accuracy, n in known) / total if total else None


def calibration_error(logits: Tensor, targets: Tensor, num_bins: int = 15) -> float:
    """The expected calibration error: |accuracy - confidence| averaged over bins of equal width.

    Guo et al., "On Calibration of Modern Neural Networks", ICML 2017. Confidence is the softmax value of the predicted
    class.

    >>> round(calibration_error(torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 0])), 4)
    0.4526
    """
    predictions = logits.argmax(dim=1)
    confidence = F.cross_entropy(logits, predictions, reduction="none").double().neg().exp()
    confidence = confidence.clamp(max=1 - 1e-12)  # a confidence of 1 belongs to the last bin
    edges = torch.linspace(0, 1, num_bins + 1, dtype=confidence.dtype, device=confidence.device)
    bins = torch.bucketize(confidence, edges, right=True) - 1
    count = torch.bincount(bins, minlength=len(edges)).double()
    sure = torch.bincount(bins, weights=confidence, minlength=len(edges)) / count
    right = torch.bincount(bins, weights=predictions.eq(targets).double(), minlength=len(edges)) / count
    gaps = (right - sure).abs().nan_to_num()  # an empty bin has 0 / 0
    return float((gaps * (count / count.sum())).sum())


def negative_log_likelihood(logits: Tensor, targets: Tensor) -> float:
    """The mean of -log p(target).

    >>> round(negative_log_likelihood(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])), 4)
    0.6931
    """
    return float(F.cross_entropy(logits, targets, reduction="none").double().mean())


def worst_group_score(y_true: Any, y_pred: Any, *, groups: Any) -> float:
    """The accuracy in the group where it is lowest; `groups` (N,) are numbers or texts.

    >>> worst_group_score([0, 0, 1, 1], [0, 0, 1, 0], groups=["a", "a", "b", "b"])
    0.5
    """
    from sklearn.utils.validation import check_consistent_length, column_or_1d  # takes a second to import

    y_true, y_pred, groups = column_or_1d(y_true), column_or_1d(y_pred), column_or_1d(groups)
    check_consistent_length(y_true, y_pred, groups)
    hits = y_true == y_pred
    return min(float(hits[groups == group].mean()) for group in np.unique(groups))


def worst_group_scorer() -> Any:
    """`worst_group_score` for `scoring=` of GridSearchCV and cross_validate, which hand `groups` on to it.

    scikit-learn does so with metadata routing: `sklearn.set_config(enable_metadata_routing=True)`, and then
    `GridSearchCV(model, grid, scoring=worst_group_scorer()).fit(X, y, groups=groups)`. A model whose `fit` takes groups
    too must say whether it takes them: `ICDAClassifier().set_fit_request(groups=False)`.
    """
    from sklearn.metrics import make_scorer

    try:
        return make_scorer(worst_group_score).set_score_request(groups=True)
    except RuntimeError as error:
        raise OperationError(
            "worst_group_scorer needs scikit-learn's metadata routing, which hands the groups on: call "
            "sklearn.set_config(enable_metadata_routing=True) first."
        ) from error
