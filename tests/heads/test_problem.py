from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from icda.functional.strength import Strength
from icda.heads.problem import LossSettings, Problem, rebalance, reweigh
from icda.heads.solver import fit_head


def make_problem(size: int = 60, classes: int = 3) -> Problem:
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(size) % classes
    targets[: size // 3] = 0
    features = torch.randn(size, 4, generator=generator, dtype=torch.float64) + targets[:, None]
    weights = torch.rand(size, generator=generator, dtype=torch.float64) + 0.5
    counts = torch.bincount(targets, weights, minlength=classes)
    return Problem(features, targets, classes, weights, weights, counts, 0.05)


def test_rows_keep_what_belongs_to_the_samples_and_count_the_classes_again() -> None:
    problem = make_problem()
    strength = Strength(torch.rand(60, 3).double(), torch.rand(60).double())
    log_prior, margins = torch.randn(60, 3).double(), torch.randn(3).double()
    chosen = torch.arange(60) % 4 != 1
    part = replace(problem, strength=strength, log_prior=log_prior, margins=margins).rows(chosen)
    assert part.log_prior is not None
    assert part.strength is not None
    assert part.margins is not None
    assert torch.equal(part.log_prior, log_prior[chosen])
    assert torch.equal(part.strength.per_sample, strength.per_sample[chosen])
    assert torch.equal(part.margins, margins)
    for label in range(3):
        mass = sum(float(w) for w, y in zip(part.weights, part.targets, strict=True) if int(y) == label)
        assert float(part.class_counts[label]) == pytest.approx(mass)


@pytest.mark.parametrize("name", ["la", "icda"])
def test_a_log_prior_of_the_counts_is_the_prior_of_the_counts(name: str) -> None:
    problem = make_problem()
    given = replace(problem, log_prior=problem.class_counts.log().expand(60, -1) + torch.randn(60, 1).double())
    found, wanted = (fit_head(each, LossSettings(name), 500, 1e-9) for each in (given, problem))
    torch.testing.assert_close(found.weight, wanted.weight, rtol=1e-5, atol=1e-6)


def test_weighing_samples_after_the_prior_adds_no_prior_of_the_counts() -> None:
    """The counts follow the weights; a sample that brings its own prior does not read them."""
    prior = rebalance(make_problem(), torch.arange(60) % 2, "prior")
    weights = torch.linspace(0.2, 2, 60).double()
    again = reweigh(prior, weights)
    assert again.log_prior is not None
    assert not again.constants("la").any()
    found, wanted = (fit_head(again, LossSettings(name), 500, 1e-9) for name in ("la", "ce"))
    torch.testing.assert_close(found.weight, wanted.weight)
