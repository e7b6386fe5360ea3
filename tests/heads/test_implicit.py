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
    plain = replace(problem, weights=problem.weights.detach(), margins=problem.margins.detach())
    head = fitted(plain, loss)
    groups = LabelGroups.of(problem.targets, 3)
    optimum = Optimum(problem.features, head, problem.decay, lambda z, b: mean_loss(problem, loss, groups, z, b))
    leaf = LinearHead(head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_())
    slope = torch.autograd.grad(judged(leaf), (leaf.weight, leaf.bias))
    return optimum, (slope[0], slope[1])


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_in_sample_weights_is_that_of_refitting(loss):
    problem = small_problem()
    weights = problem.weights.clone().requires_grad_()
    optimum, slope = optimum_of(replace(problem, weights=weights), loss)
    optimum.response(optimum.solve(slope, iterations=200, tol=1e-12)).backward()
    step = 1e-2  # well above what L-BFGS leaves of the optimum's error
    for sample in (0, 7, 23):
        values = []
        for sign in (1, -1):
            moved = problem.weights.clone()
            moved[sample] += sign * step
            values.append(float(judged(fitted(replace(problem, weights=moved), loss))))
        assert float(weights.grad[sample]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-3, abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_in_class_margins_is_that_of_refitting(loss):
    problem = small_problem()
    margins = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimum, slope = optimum_of(replace(problem, margins=margins * 1), loss)
    optimum.response(optimum.solve(slope, iterations=200, tol=1e-12)).backward()
    assert float(margins.grad.sum()) == pytest.approx(0, abs=1e-10)  # a margin for all classes changes nothing
    for label in range(3):
        values = []
        for sign in (1, -1):
            moved = torch.zeros(3, dtype=torch.float64)
            moved[label] = sign * 1e-2
            values.append(float(judged(fitted(replace(problem, margins=moved), loss))))
        assert float(margins.grad[label]) == pytest.approx((values[0] - values[1]) / 2e-2, rel=1e-3, abs=1e-8)


def test_gradient_in_sample_strengths_is_that_of_refitting():
    problem, loss = small_problem(), LossSettings("icda", 0.5, 0.4)
    alpha = problem.strength.per_sample.clone().requires_grad_()
    live = replace(problem, strength=Strength(problem.strength.per_class, alpha))
    head = fitted(problem, loss)
    groups = LabelGroups.of(problem.targets, 3)
    optimum = Optimum(problem.features, head, problem.decay, lambda z, b: mean_loss(live, loss, groups, z, b))
    leaf = LinearHead(head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_())
    slope = torch.autograd.grad(judged(leaf), (leaf.weight, leaf.bias))
    optimum.response(optimum.solve((slope[0], slope[1]), iterations=200, tol=1e-12)).backward()
    for sample in (1, 12):
        values = []
        for sign in (1, -1):
            moved = problem.strength.per_sample.clone()
            moved[sample] += sign * 1e-2
            strength = Strength(problem.strength.per_class, moved)
            values.append(float(judged(fitted(replace(problem, strength=strength), loss))))
        assert float(alpha.grad[sample]) == pytest.approx((values[0] - values[1]) / 2e-2, rel=1e-3, abs=1e-9)


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
