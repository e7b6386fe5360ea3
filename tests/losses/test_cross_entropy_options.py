"""ignore_index, soft targets, label_smoothing and class_weight mean what they mean to torch's cross_entropy."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda import CrossEntropyLoss
from icda.errors import InputError, InputTypeError
from icda.losses import LOSSES, AdjustedLoss
from icda.losses.logit_adjustment import LogitAdjustmentLoss


def test_it_is_cross_entropy_and_adjusts_nothing():
    head, features = nn.Linear(5, 3), torch.randn(8, 5, requires_grad=True)
    targets = torch.arange(8) % 3
    loss = CrossEntropyLoss(3, 5)
    value, expected = loss(features, targets, head, progress=0.3), F.cross_entropy(head(features), targets)
    assert torch.equal(value, expected)
    leaves = [features, head.weight, head.bias]
    for found, wanted in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(loss.adjustment(features, targets, head), torch.zeros(8, 3))


def test_class_counts_change_nothing():
    head, features, targets = nn.Linear(5, 3), torch.randn(8, 5), torch.arange(8) % 3
    counted = CrossEntropyLoss(3, 5, class_counts=torch.tensor([9, 1, 0]))
    assert torch.equal(counted(features, targets, head), CrossEntropyLoss(3, 5)(features, targets, head))


COUNTS = torch.tensor([6, 3, 1])
REDUCTIONS = ["mean", "sum", "none"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"label_smoothing": 0.2},
    {"class_weight": torch.tensor([0.5, 2.0, 1.0])},
    {"label_smoothing": 0.1, "class_weight": torch.tensor([0.5, 2.0, 0.0])},
]
# Settings with which a loss is cross entropy of the plain logits, or of logits plus a constant of each label.
PLAIN: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "logit_adjustment": {"tau": 0.0},
    "isda": {"lambda0": 0.0},
    "risda": {"lambda0": 0.0, "mean_strength": 0.0},
    "sgida": {"lambda0": 0.0, "triplet_weight": 0.0},
    "icda": {"lambda0": 0.0, "beta": 0.0, "class_margin": False},
    "center_loss": {"weight": 0.0},
    "large_margin_softmax": {"margin": 1},
}
OTHERS = ["focal", "generalized_cross_entropy", "apl", "class_balanced_cross_entropy", "class_balanced_focal"]


def make_batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(8, 5, generator=generator, dtype=dtype)
    head = nn.Linear(5, 3).to(dtype)
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 5, generator=generator))
    return features, torch.tensor([0, 1, 2, 0, 0, 1, 2, 1]), head


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("targets", ["labels", "some ignored", "soft"])
def test_without_its_terms_a_loss_is_torchs_cross_entropy(name, options, reduction, targets):
    features, labels, head = make_batch()
    if targets == "some ignored":
        labels = labels.clone()
        labels[[1, 6]] = -100
    given = labels if targets != "soft" else torch.rand(8, 3, dtype=torch.float64).softmax(1)
    loss = LOSSES.get(name)(3, 5, COUNTS, **PLAIN[name], **options, reduction=reduction)
    found = loss(features, given, head)
    torch_options = {("weight" if key == "class_weight" else key): value for key, value in options.items()}
    if "weight" in torch_options:
        torch_options["weight"] = torch_options["weight"].double()
    expected = F.cross_entropy(head(features), given, reduction=reduction, **torch_options)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS, "ldam", "adaptive_logit_adjustment"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ignored_samples_are_as_if_they_were_not_there(name, reduction):
    features, labels, head = make_batch()
    kept = torch.tensor([0, 2, 3, 4, 5, 7])
    marked = torch.full_like(labels, 255)
    marked[kept] = labels[kept]
    with_gap, without = (LOSSES.get(name)(3, 5, COUNTS, reduction=reduction, ignore_index=255) for _ in range(2))
    found, expected = with_gap(features, marked, head), without(features[kept], labels[kept], head)
    if reduction == "none":
        assert found.shape == (8,)
        assert not found[[1, 6]].any()
        found = found[kept]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    for mine, theirs in zip(with_gap.buffers(), without.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS, "ldam", "adaptive_logit_adjustment"])
def test_a_batch_that_is_ignored_as_a_whole_is_refused(name):
    features, labels, head = make_batch()
    loss = LOSSES.get(name)(3, 5, COUNTS)
    with pytest.raises(InputError, match="all targets are ignore_index, -100"):
        loss(features, torch.full_like(labels, -100), head)


@pytest.mark.parametrize("name", ["icda", "isda", "logit_adjustment", "ldam"])
def test_one_hot_targets_are_the_labels(name):
    features, labels, head = make_batch()
    hard, soft = (LOSSES.get(name)(3, 5, COUNTS) for _ in range(2))
    torch.testing.assert_close(
        soft(features, F.one_hot(labels, 3).double(), head), hard(features, labels, head), rtol=1e-12, atol=1e-12
    )
    for mine, theirs in zip(soft.buffers(), hard.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", OTHERS)
def test_class_weight_weighs_the_samples_of_losses_that_are_no_cross_entropy(name):
    features, labels, head = make_batch()
    weights = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    each = LOSSES.get(name)(3, 5, COUNTS, reduction="none")(features, labels, head)
    found = LOSSES.get(name)(3, 5, COUNTS, class_weight=weights)(features, labels, head)
    torch.testing.assert_close(found, (weights[labels] * each).sum() / weights[labels].sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_soft_targets_and_smoothing_are_refused_where_they_have_no_meaning(name):
    features, labels, head = make_batch()
    with pytest.raises(InputTypeError, match="integer class labels"):
        LOSSES.get(name)(3, 5, COUNTS)(features, F.one_hot(labels, 3).double(), head)
    with pytest.raises(InputError, match="label_smoothing has no meaning"):
        LOSSES.get(name)(3, 5, COUNTS, label_smoothing=0.1)


def test_a_share_of_the_target_on_a_class_without_samples_is_refused_instead_of_infinite():
    features, labels, head = make_batch()
    loss = LogitAdjustmentLoss(3, 5, torch.tensor([5, 5, 0]), label_smoothing=0.1)
    with pytest.raises(InputError, match="would be NaN or infinite"):
        loss(features, labels.clamp(max=1), head)


@pytest.mark.parametrize("weights", [[0.0, 0.0, 1.0], [3e38, 3e38, 3e38]])
def test_a_batch_of_classes_without_weight_or_of_infinite_weight_is_refused_instead_of_nan(weights):
    features, labels, head = make_batch()
    loss: AdjustedLoss = LOSSES.get("cross_entropy")(3, 5, class_weight=torch.tensor(weights))
    with pytest.raises(InputError, match="weight 0"):
        loss(features, labels.clamp(max=1), head)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"class_weight": torch.ones(2)}, r"class_weight of shape \(3,\), got \(2,\)"),
        ({"class_weight": torch.tensor([1.0, -1.0, 1.0])}, "class_weight that are finite, not negative"),
        ({"ignore_index": 0.5}, "ignore_index as a whole number, got 0.5"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises((InputError, InputTypeError), match=message):
        LOSSES.get("icda")(3, 5, **options)


@pytest.mark.parametrize("rows", [torch.tensor([[0.5, 0.6, 0.5]]), torch.tensor([[1.5, -0.5, 0.0]])])
def test_rows_that_are_no_probabilities_are_refused(rows):
    features, _, head = make_batch()
    with pytest.raises(InputError, match="rows are probabilities"):
        LOSSES.get("icda")(3, 5)(features, rows.double().expand(8, 3), head)
