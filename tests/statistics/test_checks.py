import pytest
import torch
from torch import Tensor

from icda.statistics.checks import check_features, check_num_classes, check_targets


def test_good_features_and_targets_pass_in_silence() -> None:
    check_features(torch.randn(3, 4), 4, "Owner")
    check_features(torch.randn(3, 4, dtype=torch.bfloat16), 4, "Owner")
    check_targets(torch.tensor([0, 2, 1]), 3, 3, "Owner")
    check_num_classes(2, "Owner")


@pytest.mark.parametrize("shape", [(3, 4, 1, 1), (3, 2, 2), (3, 4, 5)])
def test_features_with_more_than_two_dimensions_are_told_to_flatten(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"Owner expects features of shape \(N, 4\), got .*flatten"):
        check_features(torch.zeros(shape), 4, "Owner")


@pytest.mark.parametrize("shape", [(3, 5), (4,), ()])
def test_wrong_width_is_named_without_the_advice_to_flatten(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(N, 4\), got") as caught:
        check_features(torch.zeros(shape), 4, "Owner")
    assert str(shape) in str(caught.value)
    assert "flatten" not in str(caught.value)


def test_integer_features_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"floating-point features, got torch\.int64"):
        check_features(torch.zeros(3, 4, dtype=torch.int64), 4, "Owner")


def test_an_empty_batch_is_said_to_be_empty() -> None:
    with pytest.raises(ValueError, match="empty batch"):
        check_features(torch.zeros(0, 4), 4, "Owner")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_the_first_row_with_a_value_that_is_not_finite_is_named(bad: float) -> None:
    features = torch.zeros(6, 4)
    features[2, 1] = features[4, 0] = bad
    with pytest.raises(ValueError, match=r"row 2 \(2 of 6 rows\)"):
        check_features(features, 4, "Owner")


def test_infinities_that_would_cancel_in_a_sum_are_found() -> None:
    features = torch.zeros(2, 2)
    features[0, 0], features[1, 1] = float("inf"), -float("inf")
    with pytest.raises(ValueError, match="row 0"):
        check_features(features, 2, "Owner")


@pytest.mark.parametrize(("dtype", "value"), [(torch.float16, 6e4), (torch.float32, 3e38)])
def test_finite_features_whose_sum_overflows_pass(dtype: torch.dtype, value: float) -> None:
    features = torch.full((3, 4), value, dtype=dtype)
    assert torch.isinf(features.sum())
    check_features(features, 4, "Owner")


@pytest.mark.parametrize(("labels", "wrong"), [([0, -1, 2], "-1"), ([0, 3, 1], "3"), ([-7, 9, 0], "-7")])
def test_a_label_out_of_range_is_named_with_the_range(labels: list[int], wrong: str) -> None:
    with pytest.raises(ValueError, match=rf"Owner got label {wrong}, outside 0\.\.2"):
        check_targets(torch.tensor(labels), 3, 3, "Owner")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64])
def test_labels_that_are_not_integers_are_a_type_error(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"integer class labels.*targets\.long\(\)"):
        check_targets(torch.zeros(3, dtype=dtype), 3, 3, "Owner")


@pytest.mark.parametrize("targets", [torch.zeros(2).long(), torch.zeros(3, 1).long(), torch.tensor(0)])
def test_targets_of_another_shape_are_refused(targets: Tensor) -> None:
    with pytest.raises(ValueError, match=r"targets of shape \(3,\)"):
        check_targets(targets, 3, 3, "Owner")


@pytest.mark.parametrize("num_classes", [1, 0, -3])
def test_fewer_than_two_classes_are_refused(num_classes: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 classes, got num_classes={num_classes}"):
        check_num_classes(num_classes, "Owner")
