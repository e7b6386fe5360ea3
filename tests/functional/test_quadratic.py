"""The augmentation term, written plainly, against loops; and the form that differentiates everything."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icda.functional.augmentation import off_target, variance_term
from icda.functional.quadratic import mean_term, quadratic_form, sample_variance_form
from icda.statistics import Moments

KINDS = ["full", "diagonal", "low_rank"]
SHAPES = [(7, 4, 5), (3, 8, 4), (6, 2, 3), (1, 3, 1)]


def problem(seed, kind, size, num_classes, dim):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weight, coefficients = normal(num_classes, dim), normal(size, num_classes).abs()
    targets = torch.randint(num_classes, (size,), generator=generator)
    rows = normal(num_classes, dim + 2, dim)
    scatter, factor = (rows.mT @ rows if kind == "full" else rows.square().sum(1)), None
    if kind == "low_rank":
        factor = normal(num_classes, 2, dim)
    scale = normal(num_classes).abs()
    return weight, targets, coefficients, Moments(kind, normal(num_classes, dim), scatter, scale, factor)


def oracle(weight, targets, coefficients, moments):
    """P[i, c] = d^T (sum_j coef[i, j] Sigma_j) d, in three loops."""
    sigma = moments.covariance()
    sigma = torch.diag_embed(sigma) if sigma.dim() == 2 else sigma
    rows = []
    for i, y in enumerate(targets.tolist()):
        row = []
        for c in range(len(weight)):
            d = weight[c] - weight[y]
            row.append(sum(coefficients[i, j] * (d @ sigma[j] @ d) for j in range(len(weight))))
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_value_equals_three_loops(kind, shape):
    given_problem = problem(0, kind, *shape)
    torch.testing.assert_close(quadratic_form(*given_problem), oracle(*given_problem), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_autograd_on_three_loops(kind):
    weight, targets, coefficients, moments = problem(1, kind, 5, 4, 3)
    leaves = [weight, coefficients, moments.scatter, moments.scale]
    leaves += [] if moments.factor is None else [moments.factor]
    for leaf in leaves:
        leaf.requires_grad_()
    upstream = torch.randn(5, 4, dtype=torch.float64)
    found = torch.autograd.grad((quadratic_form(weight, targets, coefficients, moments) * upstream).sum(), leaves)
    expected = torch.autograd.grad((oracle(weight, targets, coefficients, moments) * upstream).sum(), leaves)
    for mine, wanted in zip(found, expected, strict=True):
        if kind == "full" and wanted.dim() == 3:
            # Sigma is symmetric: only the symmetric part of its gradient means anything.
            mine, wanted = mine + mine.mT, wanted + wanted.mT
        torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_first_and_second_derivatives_pass_gradcheck(kind):
    weight, targets, coefficients, moments = problem(2, kind, 3, 3, 2)

    def value(weight: Tensor, coefficients: Tensor, scatter: Tensor) -> Tensor:
        scatter = (scatter + scatter.mT) / 2 if kind == "full" else scatter
        return quadratic_form(
            weight, targets, coefficients, Moments(kind, moments.mean, scatter, moments.scale, moments.factor)
        )

    inputs = [tensor.clone().requires_grad_() for tensor in (weight, coefficients, moments.scatter)]
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(1, 6), st.integers(2, 6), st.integers(1, 5))
def test_value_is_never_negative_and_zero_at_the_target(seed, kind, size, classes, dim):
    weight, targets, coefficients, moments = problem(seed, kind, size, classes, dim)
    factor = None if moments.factor is None else moments.factor.float()
    moments = Moments(kind, moments.mean.float(), moments.scatter.float(), moments.scale.float(), factor)
    weight = (weight * 1e-4 + 100).float()  # nearly equal rows: what remains after cancellation is rounding
    value = quadratic_form(weight, targets, coefficients.float(), moments)
    assert (value >= 0).all()
    assert (value.gather(1, targets[:, None]) == 0).all()


def test_a_class_with_scale_zero_contributes_nothing():
    weight, targets, coefficients, moments = problem(3, "full", 5, 4, 3)
    moments.scale[2] = 0
    without = coefficients.clone()
    without[:, 2] = 0
    expected = quadratic_form(weight, targets, without, moments)
    assert torch.equal(quadratic_form(weight, targets, coefficients, moments), expected)


def test_variances_that_each_sample_brings_equal_two_loops():
    weight, targets, _, _ = problem(4, "diagonal", 5, 4, 3)
    variances = torch.rand(5, 3, dtype=torch.float64)
    found = sample_variance_form(weight, targets, variances)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = (variances[i] * (weight[c] - weight[y]).square()).sum()
            torch.testing.assert_close(found[i, c], expected, rtol=0, atol=1e-12)


def many_classes(seed, kind):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    rows = normal(4, 6, 3)
    scatter = rows.mT @ rows if kind == "full" else rows.square().sum(1)
    factor = normal(4, 2, 3) if kind == "low_rank" else None
    targets, towards = torch.randint(4, (6,), generator=generator), normal(6, 4).abs()
    moments = Moments(kind, normal(4, 3), scatter, normal(4).abs(), factor)
    return normal(4, 3), targets, normal(6, 4).abs(), towards, moments


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("learnt", ["coefficients", "towards", "mean", "scatter", "factor"])
def test_the_form_that_differentiates_everything_equals_the_fused_one(kind, learnt):
    weight, targets, coefficients, towards, moments = many_classes(0, kind)
    fused = variance_term(weight, targets, coefficients, moments, 0.6, towards)
    parts = {"coefficients": coefficients, "towards": towards, "mean": moments.mean}
    parts |= {"scatter": moments.scatter, "factor": moments.factor}
    if parts[learnt] is None:
        return
    leaf = parts[learnt].requires_grad_()
    plain = variance_term(weight, targets, coefficients, moments, 0.6, towards)
    torch.testing.assert_close(plain, fused, rtol=1e-12, atol=1e-12)
    assert torch.autograd.grad(plain.sum(), leaf)[0].any()


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_without_towards_the_means_are_left_out(kind):
    weight, targets, coefficients, towards, moments = many_classes(1, kind)
    both = variance_term(weight, targets, coefficients, moments, 0.6, towards)
    alone = variance_term(weight, targets, coefficients, moments, 0.6)
    expected = 0.6 * mean_term(weight, targets, towards, moments.mean)
    torch.testing.assert_close(both - alone, expected, rtol=1e-12, atol=1e-12)


def test_mean_term_equals_two_loops():
    weight, targets, _, towards, moments = many_classes(2, "diagonal")
    found = mean_term(weight, targets, towards, moments.mean)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = towards[i, c] * ((weight[c] - weight[y]) @ moments.mean[c])
            torch.testing.assert_close(found[i, c], expected, rtol=0, atol=1e-13)
        assert found[i, y] == 0


def test_off_target_puts_a_value_on_every_logit_but_the_targets():
    found = off_target(torch.tensor([0.5, -2.0]), torch.tensor([2, 0]), 3)
    assert found.tolist() == [[0.5, 0.5, 0.0], [0.0, -2.0, -2.0]]


def test_a_margin_off_target_equals_lowering_the_target_logit():
    logits, targets = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    margins = torch.rand(5, dtype=torch.float64)
    raised = torch.nn.functional.cross_entropy(logits + off_target(margins, targets, 4), targets)
    lowered = logits.scatter_add(1, targets[:, None], -margins[:, None])
    torch.testing.assert_close(raised, torch.nn.functional.cross_entropy(lowered, targets), rtol=0, atol=1e-13)
