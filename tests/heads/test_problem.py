import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from icda.functional.strength import Strength
from icda.heads.problem import LossSettings, Problem, Through, balance_weights, rebalance, reweigh
from icda.heads.solver import fit_head


def small_problem(num_classes=3, size=90):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    targets = torch.arange(size) % num_classes
    return Problem.plain(features, targets, num_classes, 0.01)


def test_reweighing_repeats_samples():
    problem = small_problem()
    weights = torch.ones(90)
    weights[:30] = 2
    rows = torch.cat([torch.arange(90), torch.arange(30)])
    targets = problem.targets[rows]
    doubled = Problem.plain(problem.features[rows], targets, 3, 0.01)
    for name in ("ce", "la", "isda", "icda"):
        found = fit_head(reweigh(problem, weights), LossSettings(name), max_iter=300, tol=1e-9)
        wanted = fit_head(doubled, LossSettings(name), max_iter=300, tol=1e-9)
        torch.testing.assert_close(found.weight, wanted.weight, atol=1e-5, rtol=1e-4)


def test_balanced_weights_give_every_pair_of_class_and_attribute_the_same_mass():
    problem = small_problem()
    attributes = (torch.rand(90, generator=torch.Generator().manual_seed(1)) < 0.2).long() * 7
    weights = rebalance(problem, attributes).weights
    masses = [float(weights[(problem.targets == c) & (attributes == a)].sum()) for c in range(3) for a in (0, 7)]
    assert max(masses) - min(masses) < 1e-9


def test_through_statistics_the_loss_counts_samples_as_before():
    problem = small_problem()
    balanced = rebalance(problem, (torch.arange(90) < 10).long(), "statistics")
    assert torch.equal(balanced.weights, problem.weights)
    assert not torch.equal(balanced.statistics_weights, problem.statistics_weights)


def test_through_the_prior_with_one_attribute_is_logit_adjustment():
    problem = small_problem()
    problem = reweigh(problem, 1.0 + (problem.targets == 0).double() * 4)
    balanced = rebalance(problem, torch.zeros(90, dtype=torch.long), "prior")
    found = fit_head(balanced, LossSettings("ce"), max_iter=300, tol=1e-9)
    wanted = fit_head(problem, LossSettings("la"), max_iter=300, tol=1e-9)
    torch.testing.assert_close(found.weight, wanted.weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.bias - found.bias.mean(), wanted.bias - wanted.bias.mean(), atol=1e-5, rtol=1e-4)


def test_masses_count_as_repeated_samples():
    labels, times = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([5, 1, 2, 1, 3, 1])
    repeated = balance_weights(labels.repeat_interleave(times))
    found = balance_weights(labels, times.float())
    torch.testing.assert_close(found.repeat_interleave(times), repeated, atol=0, rtol=1e-15)
    assert float((found * times).sum()) == pytest.approx(float(times.sum()))


def test_masses_of_one_change_no_bit():
    labels = torch.randint(0, 7, (1000,), generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(labels).double()
    wanted = len(labels) / ((counts > 0).sum() * counts)[labels]
    assert torch.equal(balance_weights(labels), wanted)
    assert torch.equal(balance_weights(labels, torch.ones(1000)), wanted)


def test_a_label_without_mass_counts_nothing():
    weights = balance_weights(torch.tensor([0, 1, 1, 2]), torch.tensor([0.0, 1.0, 1.0, 1.0]))
    assert weights.tolist() == [0.0, 0.75, 0.75, 1.5]


@pytest.mark.parametrize("through", get_args(Through))
def test_balancing_a_weighted_problem_is_balancing_repeated_samples(through):
    problem = small_problem()
    times = 1 + 4 * (torch.arange(90) % 7 == 0).long()
    attributes = (torch.rand(90, generator=torch.Generator().manual_seed(1)) < 0.2).long()
    attributes[problem.targets == 2] = 0  # one pair has no sample
    rows = torch.arange(90).repeat_interleave(times)
    targets = problem.targets[rows]
    repeated = Problem.plain(problem.features[rows], targets, 3, 0.01)
    mean = float(times.double().mean())
    weighted = rebalance(replace(reweigh(problem, times / mean), unit=1 / mean), attributes, through)
    wanted = rebalance(repeated, attributes[rows], through)
    for name in ("ce", "icda"):
        found, expected = (fit_head(p, LossSettings(name), max_iter=500, tol=1e-9) for p in (weighted, wanted))
        torch.testing.assert_close(found.weight, expected.weight, atol=1e-5, rtol=1e-4)


def test_the_prior_does_not_depend_on_the_scale_of_the_weights_and_unseen_pairs_are_rarest():
    priors = []
    for scale in (1.0, 1e-3):
        problem = small_problem()
        problem = reweigh(problem, scale * (1.0 + 4 * (problem.targets == 1).double()))
        log_prior = rebalance(problem, (problem.targets == 0).long(), "prior").log_prior
        unseen, frequent, rare = log_prior[1].tolist()  # of the attribute that classes 1 and 2 share
        assert frequent - rare == pytest.approx(math.log(5))
        assert unseen < rare - 2
        priors.append(log_prior)
    torch.testing.assert_close(*priors)


def make_problem(size=60, classes=3):
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(size) % classes
    targets[: size // 3] = 0
    features = torch.randn(size, 4, generator=generator, dtype=torch.float64) + targets[:, None]
    weights = torch.rand(size, generator=generator, dtype=torch.float64) + 0.5
    counts = torch.bincount(targets, weights, minlength=classes)
    return Problem(features, targets, classes, weights, weights, counts, 0.05)


def test_rows_keep_what_belongs_to_the_samples_and_count_the_classes_again():
    problem = make_problem()
    strength = Strength(torch.rand(60, 3).double(), torch.rand(60).double())
    log_prior, margins = torch.randn(60, 3).double(), torch.randn(3).double()
    chosen = torch.arange(60) % 4 != 1
    part = replace(problem, strength=strength, log_prior=log_prior, margins=margins).rows(chosen)
    assert torch.equal(part.log_prior, log_prior[chosen])
    assert torch.equal(part.strength.per_sample, strength.per_sample[chosen])
    assert torch.equal(part.margins, margins)
    for label in range(3):
        mass = sum(float(w) for w, y in zip(part.weights, part.targets, strict=True) if int(y) == label)
        assert float(part.class_counts[label]) == pytest.approx(mass)


@pytest.mark.parametrize("name", ["la", "icda"])
def test_a_log_prior_of_the_counts_is_the_prior_of_the_counts(name):
    problem = make_problem()
    given = replace(problem, log_prior=problem.class_counts.log().expand(60, -1) + torch.randn(60, 1).double())
    found, wanted = (fit_head(each, LossSettings(name), 500, 1e-9) for each in (given, problem))
    torch.testing.assert_close(found.weight, wanted.weight, rtol=1e-5, atol=1e-6)


def test_weighing_samples_after_the_prior_adds_no_prior_of_the_counts():
    """The counts follow the weights; a sample that brings its own prior does not read them."""
    prior = rebalance(make_problem(), torch.arange(60) % 2, "prior")
    weights = torch.linspace(0.2, 2, 60).double()
    again = reweigh(prior, weights)
    assert not again.constants("la").any()
    found, wanted = (fit_head(again, LossSettings(name), 500, 1e-9) for name in ("la", "ce"))
    torch.testing.assert_close(found.weight, wanted.weight)
