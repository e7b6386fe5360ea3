from typing import Any

import pytest
import torch

from icda import ClassStatistics
from icda.errors import InputError, InputTypeError
from icda.statistics.checks import check_number, check_sizes, read_once


def update(features: Any = None, targets: Any = None, **options: Any) -> None:
    statistics = ClassStatistics(3, 4, "diagonal", **options)
    given = torch.zeros(6, 4) if features is None else features
    statistics.update(given, torch.arange(6) % 3 if targets is None else targets)


def spoilt(value: float) -> torch.Tensor:
    features = torch.zeros(6, 4)
    features[2, 1], features[4, 0] = value, -value
    return features


@pytest.mark.parametrize(
    ("features", "error", "words"),
    [
        (torch.zeros(6, 4, 1, 1), InputError, r"\(N, 4\), got .*flatten"),
        (torch.zeros(6, 5), InputError, r"\(N, 4\), got \(6, 5\)"),
        (torch.zeros(4), InputError, r"\(N, 4\), got"),
        (torch.zeros(6, 4, dtype=torch.int64), InputTypeError, "floating-point"),
        (torch.zeros(0, 4), InputError, "empty batch"),
        (spoilt(float("nan")), InputError, r"row 2 \(2 of 6 rows\)"),
        (spoilt(float("inf")), InputError, r"row 2 \(2 of 6 rows\)"),
        (spoilt(1e20), InputError, "squares overflow"),
        ([[0.0] * 4] * 6, InputTypeError, "torch.Tensor, got list"),
    ],
)
def test_features_that_cannot_be_taken_are_named(features: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        update(features)


@pytest.mark.parametrize(
    ("targets", "error", "words"),
    [
        (torch.tensor([0, -1, 2, 0, 1, 2]), InputError, r"label -1, outside 0\.\.2"),
        (torch.tensor([0, 9, 2, 0, 1, 2]), InputError, r"label 9, outside 0\.\.2"),
        (torch.zeros(6), InputTypeError, r"targets\.long\(\)"),
        (torch.zeros(6, dtype=torch.bool), InputTypeError, "integer class labels"),
        (torch.zeros(6, 1).long(), InputError, r"shape \(6,\)"),
    ],
)
def test_labels_that_cannot_be_taken_are_named(targets: torch.Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        update(targets=targets)


def test_good_features_of_any_precision_pass_and_unvalidated_values_are_the_callers_affair() -> None:
    update(torch.randn(6, 4, dtype=torch.bfloat16))
    update(torch.randn(6, 4, dtype=torch.float64))
    update(spoilt(float("nan")), validate=False)


@pytest.mark.parametrize("value", ["1", None, True, torch.tensor(1.0), float("nan"), -0.1, 1.1])
def test_a_number_is_finite_and_in_its_range(value: Any) -> None:
    check_number(0.5, "share", "Owner", 0, 1)
    with pytest.raises((InputError, InputTypeError), match="Owner expects share"):
        check_number(value, "share", "Owner", 0, 1)


def test_sizes_are_whole_and_large_enough() -> None:
    for classes, features in ((1, 4), (3, 0), (2.5, 4)):
        with pytest.raises((InputError, InputTypeError), match="Owner"):
            check_sizes(classes, features, "Owner")


def test_scalars_of_any_type_come_as_numbers() -> None:
    assert read_once(torch.tensor(3), torch.tensor(True), torch.tensor(0.5)) == [3, 1, 0.5]
