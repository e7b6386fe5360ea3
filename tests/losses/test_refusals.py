"""Calls that cannot be: one sentence each, and nothing has changed."""

import pytest
import torch
from torch import nn

from icda import ClassStatistics, CrossEntropyLoss, ICDALoss, LogitAdjustmentLoss
from icda.errors import IcdaError, InputError, InputTypeError
from icda.functional import quadratic
from icda.functional.quadratic import quadratic_form
from icda.losses import LOSSES
from icda.statistics import Moments
from icda.statistics.low_rank import compress

NAMES = sorted(LOSSES)


def make_batch():
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(4, 3)
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 4, generator=generator))
    return torch.randn(6, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2]), head


def make_loss(name):
    return LOSSES.get(name)(3, 4, torch.tensor([3, 2, 1]))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.uint16])
def test_labels_of_any_integer_type_are_taken(dtype):
    features, targets, head = make_batch()
    expected = make_loss("icda")(features, targets, head)
    assert torch.equal(make_loss("icda")(features, targets.to(dtype), head), expected)


def test_a_masked_class_is_allowed_and_a_masked_target_is_not():
    features, targets, head = make_batch()
    logits = head(features).detach()
    logits[0, 2] = -torch.inf
    loss = make_loss("icda")
    assert torch.isfinite(loss(features, targets, head, logits=logits))
    logits[0, 0] = -torch.inf
    with pytest.raises(InputError, match="infinite logits"):
        loss(features, targets, head, logits=logits)


def test_statistics_refuse_to_merge_into_something_infinite():
    features, targets, _ = make_batch()
    left, right = ClassStatistics(3, 4), ClassStatistics(3, 4)
    left.update(1e14 * features, targets)
    right.update(-1e14 * features.abs() / 4, targets)
    right.mean = right.mean - 1e20
    before = left.scatter.clone()
    with pytest.raises(InputError, match="nothing was merged"):
        left.merge(right)
    assert torch.equal(left.scatter, before)
    with pytest.raises(InputTypeError, match="only ClassStatistics can be merged, got dict"):
        left.merge({})


def test_equal_samples_never_end_low_rank_statistics():
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        statistics = ClassStatistics(2, 12, "low_rank", rank=4)
        row = torch.randn(1, 12, generator=generator)
        for _ in range(4):
            statistics.update(row.expand(9, 12), torch.arange(9) % 2)
        assert torch.isfinite(statistics.covariance).all()
        assert statistics.covariance.abs().max() < 1e-10


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1.0, 1e18])
@pytest.mark.parametrize("shape", [(3, 6), (9, 4)])
def test_rows_of_any_size_are_compressed_alike(size, shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    factor = compress(rows * size, rank=4).double() / size
    torch.testing.assert_close(factor.mT @ factor, (rows.mT @ rows).double(), rtol=1e-4, atol=1e-4)


def test_projections_in_parts_equal_those_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    weight, factor = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((5, 4), (5, 2, 4)))
    moments = Moments("low_rank", weight, weight.square(), weight[:, 0].abs(), factor)
    targets = torch.tensor([4, 0, 0, 2])
    coefficients = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    leaf = weight.clone().requires_grad_()
    results = []
    for limit in (1 << 26, 1):
        monkeypatch.setattr(quadratic, "PROJECTION_ELEMENTS", limit)
        value = quadratic_form(leaf, targets, coefficients, moments)
        results.append((value, torch.autograd.grad(value.square().sum(), leaf)[0]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [{"reduction": "average"}, {"ignore_index": None}, {"label_smoothing": "x"}])
def test_options_of_another_kind_are_refused_with_the_name_of_the_loss(name, wrong):
    with pytest.raises(IcdaError):
        LOSSES.get(name)(3, 4, torch.tensor([3, 2, 1]), **wrong)


@pytest.mark.parametrize("covariance", ["diagonal", "full", "low_rank"])
def test_a_refused_call_leaves_the_graphs_of_earlier_ones_alone(covariance):
    loss, head = ICDALoss(3, 4, torch.tensor([4, 4, 4]), covariance=covariance), nn.Linear(4, 3)
    features, targets = torch.randn(12, 4, requires_grad=True), torch.arange(12) % 3
    first = loss(features, targets, head)
    with pytest.raises(InputError):
        loss(features.detach() * 1e25, targets, head)
    first.backward()
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("kind", [ICDALoss, CrossEntropyLoss, LogitAdjustmentLoss])
def test_logits_in_the_place_of_features_and_head_are_told_of_the_tap(kind):
    loss = kind(3, 4, class_counts=[5, 4, 3])
    with pytest.raises(TypeError, match=rf"{kind.__name__} needs the head.*FeatureTap"):
        loss(torch.randn(6, 3), torch.arange(6) % 3)


def test_regression_targets_are_told_that_the_loss_classifies():
    with pytest.raises(TypeError, match="it classifies"):
        ICDALoss(3, 4)(torch.randn(6, 4), torch.rand(6), torch.nn.Linear(4, 3))


def test_a_loss_made_on_the_meta_device_can_be_loaded_and_used():
    with torch.device("meta"):
        loss = ICDALoss(3, 4, class_counts=torch.tensor([5, 4, 3], device="cpu"))
    ready = ICDALoss(3, 4, class_counts=[5, 4, 3])
    loss.to_empty(device="cpu").load_state_dict(ready.state_dict())
    batch = torch.randn(6, 4), torch.arange(6) % 3, torch.nn.Linear(4, 3)
    assert torch.equal(loss(*batch), ready(*batch))
