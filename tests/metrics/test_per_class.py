import numpy as np
import pytest
import sklearn.metrics
import torch
from torchmetrics.functional.classification import multiclass_confusion_matrix, multiclass_precision

from icda.metrics.per_class import (
    band_accuracy,
    confusion_matrix,
    macro_precision,
    mean_known,
    per_class_accuracy,
    worst_known,
)


def labels(seed: int, num_classes: int, samples: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predictions, targets = torch.randint(num_classes, (2, samples), generator=generator)
    return predictions, targets


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 7, 80])
def test_confusion_and_precision_agree_with_scikit_learn(seed: int, num_classes: int) -> None:
    predictions, targets = labels(seed, num_classes)
    confusion = confusion_matrix(predictions, targets, num_classes)
    expected = sklearn.metrics.confusion_matrix(targets, predictions, labels=range(num_classes))
    assert confusion == expected.tolist()
    precision = sklearn.metrics.precision_score(targets, predictions, average="macro", zero_division=0)
    assert macro_precision(predictions, targets, num_classes) == pytest.approx(precision, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 7, 80])
def test_confusion_and_precision_are_those_of_torchmetrics_to_the_last_bit(seed: int, num_classes: int) -> None:
    predictions, targets = labels(seed, num_classes)
    expected = multiclass_confusion_matrix(predictions, targets, num_classes)
    assert confusion_matrix(predictions, targets, num_classes) == expected.tolist()
    precision = multiclass_precision(predictions, targets, num_classes, average="macro")
    assert macro_precision(predictions, targets, num_classes) == float(precision)


def test_a_label_outside_the_classes_is_an_error() -> None:
    for targets in ([0, 2], [0, -1]):
        with pytest.raises(RuntimeError):
            confusion_matrix(torch.tensor([0, 1]), torch.tensor(targets), num_classes=2)


@pytest.mark.parametrize("seed", range(5))
def test_per_class_accuracy_is_recall_and_none_for_absent_classes(seed: int) -> None:
    predictions, targets = labels(seed, num_classes=50)
    found = per_class_accuracy(confusion_matrix(predictions, targets, 50))
    recall = sklearn.metrics.recall_score(targets, predictions, labels=range(50), average=None, zero_division=np.nan)
    assert None in found
    np.testing.assert_allclose([np.nan if value is None else value for value in found], recall)


def test_a_count_on_a_threshold_is_medium() -> None:
    bands = band_accuracy([0.1, 0.2, 0.3, 0.4], [101, 100, 20, 19])
    assert bands == {"many_accuracy": 0.1, "medium_accuracy": 0.25, "few_accuracy": 0.4}
    assert band_accuracy([0.1, 0.9], [5, 9], thresholds=(2, 6))["many_accuracy"] == 0.9


def test_what_has_no_known_value_is_none() -> None:
    empty = {"many_accuracy": 0.5, "medium_accuracy": None, "few_accuracy": None}
    assert band_accuracy([0.5, 0.5], torch.tensor([500, 500])) == empty
    assert band_accuracy([None, 0.5], [5, 500]) == empty  # its classes are absent
    assert mean_known([None]) is worst_known([]) is None
