from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from icda.functional.grouping import LabelGroups
from icda.functional.strength import Strength
from icda.heads.implicit import Optimum
from icda.heads.meta import mean_loss
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import LinearHead, fit_head

LOSSES = [LossSettings("ce"), LossSettings("isda", 0.7), LossSettings("icda", 0.5, 0.4)]


def small_problem(size=40):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    targets = torch.arange(size) % 3
    features[:, 0] += targets
    ones = torch.ones(size, dtype=torch.float64)
    per_class = torch.rand(size, 3, generator=generator, dtype=torch.float64).scatter(1, targets[:, None], 0)
    strength = Strength(per_class, torch.rand(size, generator=generator, dtype=torch.float64))
    margins = torch.zeros(3, dtype=torch.float64)
    return Problem(features, targets, 3, ones, ones, torch.bincount(targets).double(), 0.05, strength, margins=margins)


def fitted(problem, loss):
    return fit_head(problem, loss, max_iter=2000, tol=1e-11, rounds=1, start=fit_head(problem, LossSettings("ce")))


def judged(head):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    return F.cross_entropy(F.linear(features, head.weight, head.bias), torch.arange(20) % 3)


def optimum_of(problem, loss):
    fixed = {name: getattr(problem, name).detach() for name in ("weights", "margins")}
    strength = Strength(*(part.detach() for part in problem.strength))
    head = fitted(replace(problem, **fixed, strength=strength), loss)
    groups = LabelGroups.of(problem.targets, 3)
    optimum = Optimum(problem.features, head, problem.decay, lambda z, b: mean_loss(problem, loss, groups, z, b))
    leaf = LinearHead(head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_())
    slope = torch.autograd.grad(judged(leaf), (leaf.weight, leaf.bias))
    return optimum, (slope[0], slope[1])


def check_gradient(change, values, loss, places):
    """Through the optimum, the gradient in what `change` puts into a problem is that of refitting."""
    live = values.clone().requires_grad_()
    optimum, slope = optimum_of(change(live * 1), loss)
    optimum.response(optimum.solve(slope, iterations=200, tol=1e-12)).backward()
    step = 1e-2  # well above what L-BFGS leaves of the optimum's error
    for place in places:
        aside = step * torch.eye(len(values), dtype=torch.float64)[place]
        up, down = (float(judged(fitted(change(values + sign * aside), loss))) for sign in (1, -1))
        assert float(live.grad[place]) == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-8)
    return live.grad


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_in_sample_weights_is_that_of_refitting(loss):
    problem = small_problem()
    check_gradient(lambda weights: replace(problem, weights=weights), problem.weights, loss, (0, 7, 23))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_in_class_margins_is_that_of_refitting(loss):
    problem = small_problem()
    slope = check_gradient(lambda margins: replace(problem, margins=margins), problem.margins, loss, range(3))
    assert float(slope.sum()) == pytest.approx(0, abs=1e-10)  # a margin for all classes changes nothing


def test_gradient_in_sample_strengths_is_that_of_refitting():
    problem = small_problem()
    per_class, per_sample = problem.strength

    def change(alpha):
        return replace(problem, strength=Strength(per_class, alpha))

    check_gradient(change, per_sample, LossSettings("icda", 0.5, 0.4), (1, 12))


def test_curvature_is_symmetric_and_solved_for():
    optimum, slope = optimum_of(small_problem(), LossSettings("icda", 0.5, 0.4))
    solution = optimum.solve(slope, iterations=200, tol=1e-13)
    found = optimum.curvature(solution)
    torch.testing.assert_close(found[0], slope[0], atol=1e-9, rtol=1e-6)
    torch.testing.assert_close(found[1], slope[1], atol=1e-9, rtol=1e-6)
    other = (torch.randn_like(slope[0]), torch.randn_like(slope[1]))
    first = sum(float((a * b).sum()) for a, b in zip(other, optimum.curvature(slope), strict=True))
    second = sum(float((a * b).sum()) for a, b in zip(slope, optimum.curvature(other), strict=True))
    assert first == pytest.approx(second, rel=1e-9)
