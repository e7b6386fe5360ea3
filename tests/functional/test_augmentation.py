import pytest
import torch
from torch import Tensor

from icda.functional.augmentation import off_target, variance_term
from icda.functional.quadratic import mean_term
from icda.statistics import Moments


def problem(seed: int, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Moments]:
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
def test_the_form_that_differentiates_everything_equals_the_fused_one(kind: str, learnt: str) -> None:
    weight, targets, coefficients, towards, moments = problem(0, kind)
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
def test_without_towards_the_means_are_left_out(kind: str) -> None:
    weight, targets, coefficients, towards, moments = problem(1, kind)
    both = variance_term(weight, targets, coefficients, moments, 0.6, towards)
    alone = variance_term(weight, targets, coefficients, moments, 0.6)
    expected = 0.6 * mean_term(weight, targets, towards, moments.mean)
    torch.testing.assert_close(both - alone, expected, rtol=1e-12, atol=1e-12)


def test_mean_term_equals_two_loops() -> None:
    weight, targets, _, towards, moments = problem(2, "diagonal")
    found = mean_term(weight, targets, towards, moments.mean)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = towards[i, c] * ((weight[c] - weight[y]) @ moments.mean[c])
            torch.testing.assert_close(found[i, c], expected, rtol=0, atol=1e-13)
        assert found[i, y] == 0


def test_off_target_puts_a_value_on_every_logit_but_the_targets() -> None:
    found = off_target(torch.tensor([0.5, -2.0]), torch.tensor([2, 0]), 3)
    assert found.tolist() == [[0.5, 0.5, 0.0], [0.0, -2.0, -2.0]]


def test_a_margin_off_target_equals_lowering_the_target_logit() -> None:
    logits, targets = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    margins = torch.rand(5, dtype=torch.float64)
    raised = torch.nn.functional.cross_entropy(logits + off_target(margins, targets, 4), targets)
    lowered = logits.scatter_add(1, targets[:, None], -margins[:, None])
    torch.testing.assert_close(raised, torch.nn.functional.cross_entropy(lowered, targets), rtol=0, atol=1e-13)
