"""Figures that treat every class alike, however many samples it has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.functional.confusion import count_confusions

SHOT_THRESHOLDS = (20, 100)


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
    accuracies: Sequence[float | None],
    train_class_counts: Sequence[int] | Tensor | None,
    thresholds: tuple[int, int] = SHOT_THRESHOLDS,
) -> dict[str, float | None]:
    """The mean accuracy of classes with many, a medium number of, and few training samples.

    "Many" is more than the upper threshold, "few" is fewer than the lower, as in Liu et al., "Large-Scale Long-Tailed
    Recognition in an Open World", CVPR 2019. A band without classes is None, and so are all when no counts are given.

    >>> band_accuracy([0.9, 0.6, 0.4, 0.1], train_class_counts=[500, 100, 20, 5])
    {'many_accuracy': 0.9, 'medium_accuracy': 0.5, 'few_accuracy': 0.1}
    """
    if train_class_counts is None:
        return dict.fromkeys(("many_accuracy", "medium_accuracy", "few_accuracy"))
    low, high = thresholds
    bands: dict[str, list[float | None]] = {"many_accuracy": [], "medium_accuracy": [], "few_accuracy": []}
    for accuracy, count in zip(accuracies, torch.as_tensor(train_class_counts).tolist(), strict=True):
        band = "many" if count > high else "few" if count < low else "medium"
        bands[f"{band}_accuracy"].append(accuracy)
    return {name: mean_known(members) for name, members in bands.items()}
