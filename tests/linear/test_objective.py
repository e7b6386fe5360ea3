"""The logit-space form against the losses themselves, which know nothing of it."""

from __future__ import annotations

import pytest
import torch

from icda import ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss, direct_strength
from icda.linear.objective import LogitMoments, LossSettings, adjustment, boundary_variances, weighted_cross_entropy
from icda.statistics.grouping import LabelGroups

LOSSES = {"la": LogitAdjustmentLoss, "isda": ISDALoss, "risda": RISDALoss, "icda": ICDALoss}


def problem(size: int = 60, classes: int = 4, features: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = torch.randn(size, features, dtype=torch.float64)
    targets = torch.cat([torch.arange(classes), torch.randint(classes, (size - classes,))])
    return inputs, targets, torch.randn(classes, features, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("classes", [2, 4])
def test_adjustment_and_its_gradient_equal_those_of_the_loss_with_full_covariances(name: str, classes: int) -> None:
    inputs, targets, weight = problem(classes=classes)
    counts = torch.bincount(targets, minlength=classes).double()
    loss = LOSSES[name](classes, 7, counts).double()
    relations = None
    if name != "la":
        loss.statistics.update(inputs, targets)
    if name == "risda":
        loss.set_confusion(torch.rand(classes, classes))
        relations = loss.relations()
    wanted = loss.eval().adjustment(inputs, targets, (weight, None))
    found = adjustment(
        LossSettings(name, lam=0.5, beta=0.1),
        inputs @ weight.T,
        targets,
        LabelGroups.of(targets),
        counts,
        direct_strength(inputs, targets, weight),
        torch.ones(len(targets), dtype=torch.float64),
        relations,
    )
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    if name != "la":
        upstream = torch.randn_like(found)
        mine, reference = (torch.autograd.grad((v * upstream).sum(), weight)[0] for v in (found, wanted))
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


def test_cross_entropy_has_no_adjustment() -> None:
    inputs, targets, weight = problem()
    ones = torch.ones(len(targets))
    groups, counts = LabelGroups.of(targets), torch.bincount(targets)
    assert adjustment(LossSettings("ce"), inputs @ weight.T, targets, groups, counts, None, ones) is None


def test_weights_in_the_moments_equal_repetition() -> None:
    inputs, targets, weight = problem()
    repeats = torch.randint(1, 4, (len(targets),))
    logits = inputs @ weight.detach().T
    weighted = LogitMoments(logits, LabelGroups.of(targets), repeats.double())
    rows = torch.arange(len(targets)).repeat_interleave(repeats)
    ones = torch.ones(len(rows), dtype=torch.float64)
    repeated = LogitMoments(logits[rows], LabelGroups.of(targets[rows]), ones)
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.covariance, repeated.covariance)


def test_boundary_variance_is_the_variance_of_the_logit_difference() -> None:
    inputs, targets, weight = problem()
    logits = inputs @ weight.detach().T
    moments = LogitMoments(logits, LabelGroups.of(targets), torch.ones(len(targets), dtype=torch.float64))
    table = boundary_variances(moments, torch.eye(4, dtype=torch.float64))
    for y in range(4):
        for c in range(4):
            rows = logits[targets == y]
            assert torch.isclose(table[y, c], (rows[:, c] - rows[:, y]).var(correction=0), atol=1e-12)


def test_weighted_cross_entropy_is_a_mean_by_weight() -> None:
    logits, targets = torch.randn(3, 2), torch.tensor([0, 1, 1])
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    found = weighted_cross_entropy(logits, targets, torch.tensor([1.0, 0.0, 3.0]))
    assert torch.isclose(found, (losses[0] + 3 * losses[2]) / 4)
