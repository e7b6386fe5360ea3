from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from icda.heads.problem import LossSettings, Problem, Through, balance_weights, rebalance, reweigh
from icda.heads.solver import fit_head


def small_problem(num_classes: int = 3, size: int = 90) -> Problem:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    targets = torch.arange(size) % num_classes
    ones = torch.ones(size, dtype=torch.float64)
    return Problem(features, targets, num_classes, ones, ones, torch.bincount(targets).double(), 0.01)


def test_weights_give_every_label_the_same_mass() -> None:
    labels = torch.tensor([0, 0, 0, 2, 2, 5])
    _, dense = torch.unique(labels, return_inverse=True)
    weights = balance_weights(dense)
    masses = [float(weights[labels == label].sum()) for label in (0, 2, 5)]
    assert max(masses) - min(masses) < 1e-12
    assert abs(float(weights.mean()) - 1) < 1e-12


def test_reweighing_repeats_samples() -> None:
    problem = small_problem()
    weights = torch.ones(90)
    weights[:30] = 2
    rows = torch.cat([torch.arange(90), torch.arange(30)])
    targets, ones = problem.targets[rows], torch.ones(120, dtype=torch.float64)
    doubled = Problem(problem.features[rows], targets, 3, ones, ones, torch.bincount(targets).double(), 0.01)
    for name in ("ce", "la", "isda", "icda"):
        found = fit_head(reweigh(problem, weights), LossSettings(name), max_iter=300, tol=1e-9)
        wanted = fit_head(doubled, LossSettings(name), max_iter=300, tol=1e-9)
        torch.testing.assert_close(found.weight, wanted.weight, atol=1e-5, rtol=1e-4)


def test_balanced_weights_give_every_pair_of_class_and_attribute_the_same_mass() -> None:
    problem = small_problem()
    attributes = (torch.rand(90, generator=torch.Generator().manual_seed(1)) < 0.2).long() * 7
    weights = rebalance(problem, attributes).weights
    masses = [float(weights[(problem.targets == c) & (attributes == a)].sum()) for c in range(3) for a in (0, 7)]
    assert max(masses) - min(masses) < 1e-9


def test_through_statistics_the_loss_counts_samples_as_before() -> None:
    problem = small_problem()
    balanced = rebalance(problem, (torch.arange(90) < 10).long(), "statistics")
    assert torch.equal(balanced.weights, problem.weights)
    assert not torch.equal(balanced.statistics_weights, problem.statistics_weights)


def test_through_the_prior_with_one_attribute_is_logit_adjustment() -> None:
    problem = small_problem()
    problem = reweigh(problem, 1.0 + (problem.targets == 0).double() * 4)
    balanced = rebalance(problem, torch.zeros(90, dtype=torch.long), "prior")
    found = fit_head(balanced, LossSettings("ce"), max_iter=300, tol=1e-9)
    wanted = fit_head(problem, LossSettings("la"), max_iter=300, tol=1e-9)
    torch.testing.assert_close(found.weight, wanted.weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.bias - found.bias.mean(), wanted.bias - wanted.bias.mean(), atol=1e-5, rtol=1e-4)


def test_masses_count_as_repeated_samples() -> None:
    labels, times = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([5, 1, 2, 1, 3, 1])
    repeated = balance_weights(labels.repeat_interleave(times))
    found = balance_weights(labels, times.float())
    torch.testing.assert_close(found.repeat_interleave(times), repeated, atol=0, rtol=1e-15)
    assert float((found * times).sum()) == pytest.approx(float(times.sum()))


def test_masses_of_one_change_no_bit() -> None:
    labels = torch.randint(0, 7, (1000,), generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(labels).double()
    wanted = len(labels) / ((counts > 0).sum() * counts)[labels]
    assert torch.equal(balance_weights(labels), wanted)
    assert torch.equal(balance_weights(labels, torch.ones(1000)), wanted)


def test_a_label_without_mass_counts_nothing() -> None:
    weights = balance_weights(torch.tensor([0, 1, 1, 2]), torch.tensor([0.0, 1.0, 1.0, 1.0]))
    assert weights.tolist() == [0.0, 0.75, 0.75, 1.5]


@pytest.mark.parametrize("through", get_args(Through))
def test_balancing_a_weighted_problem_is_balancing_repeated_samples(through: Through) -> None:
    problem = small_problem()
    times = 1 + 4 * (torch.arange(90) % 7 == 0).long()
    attributes = (torch.rand(90, generator=torch.Generator().manual_seed(1)) < 0.2).long()
    attributes[problem.targets == 2] = 0  # one pair has no sample
    rows = torch.arange(90).repeat_interleave(times)
    targets, ones = problem.targets[rows], torch.ones(len(rows), dtype=torch.float64)
    repeated = Problem(problem.features[rows], targets, 3, ones, ones, torch.bincount(targets).double(), 0.01)
    mean = float(times.double().mean())
    weighted = rebalance(reweigh(problem, times / mean), attributes, through, unit=1 / mean)
    wanted = rebalance(repeated, attributes[rows], through)
    for name in ("ce", "icda"):
        found, expected = (fit_head(p, LossSettings(name), max_iter=500, tol=1e-9) for p in (weighted, wanted))
        torch.testing.assert_close(found.weight, expected.weight, atol=1e-5, rtol=1e-4)


def test_the_prior_does_not_depend_on_the_scale_of_the_weights_and_unseen_pairs_are_rarest() -> None:
    priors = []
    for scale in (1.0, 1e-3):
        problem = small_problem()
        problem = reweigh(problem, scale * (1.0 + 4 * (problem.targets == 1).double()))
        log_prior = rebalance(problem, (problem.targets == 0).long(), "prior").log_prior
        assert log_prior is not None
        unseen, frequent, rare = log_prior[1].tolist()  # of the attribute that classes 1 and 2 share
        assert frequent - rare == pytest.approx(math.log(5))
        assert unseen < rare - 2
        priors.append(log_prior)
    torch.testing.assert_close(*priors)
