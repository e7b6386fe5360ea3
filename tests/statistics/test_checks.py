"""What statistics are built on: checks, buffers that keep their digits, low-rank factors."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from icda import ClassStatistics
from icda.errors import InputError, InputTypeError
from icda.statistics.checks import check_number, check_sizes, read_once
from icda.statistics.class_statistics import KeepsPrecision
from icda.statistics.low_rank import compress

TARGETS = torch.arange(6) % 3


def check_refused(error, words, features, targets=TARGETS):
    """An update of statistics of any kind is refused, and nothing is lost."""
    for kind in ("full", "diagonal", "low_rank"):
        statistics = ClassStatistics(3, 4, kind)  # type: ignore[arg-type]
        statistics.update(torch.randn(6, 4), TARGETS)
        before = {name: value.clone() for name, value in statistics.state_dict().items()}
        with pytest.raises(error, match=words):
            statistics.update(features, targets)
        assert all(torch.equal(value, before[name]) for name, value in statistics.state_dict().items())


def spoilt(value):
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
def test_features_that_cannot_be_taken_are_named(features, error, words):
    check_refused(error, words, features)


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
def test_labels_that_cannot_be_taken_are_named(targets, error, words):
    check_refused(error, words, torch.zeros(6, 4), targets)


def test_good_features_of_any_precision_pass_and_unvalidated_values_are_the_callers_affair():
    ClassStatistics(3, 4).update(torch.randn(6, 4, dtype=torch.bfloat16), TARGETS.to(torch.uint8))
    ClassStatistics(3, 4).double().update(spoilt(1e20).double(), TARGETS)
    ClassStatistics(3, 4, validate=False).update(spoilt(float("nan")), TARGETS)


@pytest.mark.parametrize("value", ["1", None, True, torch.tensor(1.0), float("nan"), -0.1, 1.1])
def test_a_number_is_finite_and_in_its_range(value):
    check_number(0.5, "share", "Owner", 0, 1)
    with pytest.raises((InputError, InputTypeError), match="Owner expects share"):
        check_number(value, "share", "Owner", 0, 1)


def test_sizes_are_whole_and_large_enough():
    for classes, features in ((1, 4), (3, 0), (2.5, 4)):
        with pytest.raises((InputError, InputTypeError), match="Owner"):
            check_sizes(classes, features, "Owner")


def test_scalars_of_any_type_come_as_numbers():
    assert read_once(torch.tensor(3), torch.tensor(True), torch.tensor(0.5)) == [3, 1, 0.5]


class Counter(KeepsPrecision):
    least_precision: ClassVar = {"mean": torch.float32}

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([70_001.0], dtype=torch.float64))
        self.register_buffer("mean", torch.tensor([1.1]))
        self.register_buffer("absent", None)
        self.register_buffer("flags", torch.tensor([True]))


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float"])
def test_a_cast_down_leaves_every_digit(cast):
    counter = getattr(Counter(), cast)()
    assert counter.count.dtype == torch.float64
    assert counter.count.item() == 70_001
    assert counter.mean.dtype == torch.float32
    assert counter.mean.item() == torch.tensor(1.1).item()
    assert counter.flags.dtype == torch.bool


def test_a_module_on_the_meta_device_can_be_given_memory():
    counter = Counter().to("meta")
    assert counter.count.is_meta
    assert counter.to_empty(device="cpu").half().count.dtype == torch.float64


def rows(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("count", "width", "rank"), [(9, 4, 4), (3, 6, 3), (3, 6, 5), (1, 4, 2), (7, 3, 3)])
def test_product_is_kept_when_the_rank_suffices(count, width, rank):
    given = rows(count, count, width)
    factor = compress(given, rank)
    assert factor.shape == (rank, width)
    torch.testing.assert_close(factor.T @ factor, given.T @ given, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_product_is_the_nearest_of_its_rank(rank):
    given = rows(rank, 12, 6)
    factor = compress(given, rank)
    _, values, directions = np.linalg.svd(given.numpy())
    kept = directions[:rank]
    np.testing.assert_allclose(factor.T @ factor, kept.T @ np.diag(values[:rank] ** 2) @ kept, atol=1e-10)


def test_variance_is_never_overstated():
    for seed in range(20):
        given = rows(seed, 10, 5)
        assert (compress(given, 2).square().sum(0) <= given.square().sum(0) + 1e-12).all()


def test_rows_of_zeros_give_a_factor_of_zeros():
    assert torch.equal(compress(torch.zeros(5, 4), 3), torch.zeros(3, 4))


def test_leading_dimensions_are_a_batch():
    given = rows(0, 3, 7, 4)
    factor = compress(given, 2)
    for part, alone in zip(factor, given, strict=True):
        single = compress(alone, 2)
        torch.testing.assert_close(part.T @ part, single.T @ single, rtol=0, atol=1e-12)
