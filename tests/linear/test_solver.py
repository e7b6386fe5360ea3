from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from icda.linear.objective import LossSettings
from icda.linear.solver import Problem, fit_head


def make_problem(classes: int = 3, decay: float = 0.01) -> Problem:
    generator = torch.Generator().manual_seed(1)
    targets = torch.arange(120) % classes
    features = torch.randn(120, 5, generator=generator, dtype=torch.float64) + targets[:, None] * 0.5
    ones = torch.ones(120, dtype=torch.float64)
    return Problem(features, targets, classes, ones, ones, torch.bincount(targets).double(), decay)


def test_cross_entropy_finds_the_optimum_of_logistic_regression() -> None:
    problem = make_problem()
    head = fit_head(problem, LossSettings("ce"), max_iter=500, tol=1e-8)
    reference = LogisticRegression(C=1 / (0.01 * 120), tol=1e-10, max_iter=1000)
    reference.fit(problem.features.numpy(), problem.targets.numpy())
    found = torch.softmax(head.logits(problem.features), 1).numpy()
    np.testing.assert_allclose(found, reference.predict_proba(problem.features.numpy()), atol=1e-5)
    assert head.converged


@pytest.mark.parametrize("name", ["ce", "la", "isda", "risda", "icda"])
def test_the_gradient_is_that_of_finite_differences_at_the_solution(name: str) -> None:
    """At a minimum no small step in any direction lowers the value."""
    problem = make_problem()
    head = fit_head(problem, LossSettings(name, lam=0.3), max_iter=500, tol=1e-7, rounds=1)
    again = fit_head(problem, LossSettings(name, lam=0.3), max_iter=1, tol=1e-7, rounds=1, start=head)
    assert again.value <= head.value + 1e-9
    assert np.isfinite(head.value)


def test_icda_without_augmentation_and_margin_is_logit_adjustment() -> None:
    problem = make_problem()
    icda = fit_head(problem, LossSettings("icda", lam=0.0, beta=0.0), 500, 1e-8)
    la = fit_head(problem, LossSettings("la"), 500, 1e-8)
    torch.testing.assert_close(icda.weight, la.weight, atol=1e-4, rtol=0)


def test_a_fit_cut_short_says_so() -> None:
    assert not fit_head(make_problem(), LossSettings("ce"), max_iter=2, tol=1e-12).converged


def test_sample_weights_equal_repetition() -> None:
    problem = make_problem()
    repeats = torch.randint(1, 4, (120,), generator=torch.Generator().manual_seed(0))
    rows = torch.arange(120).repeat_interleave(repeats)
    mass = repeats.double()
    counts = torch.bincount(problem.targets, mass)
    weighted = Problem(problem.features, problem.targets, 3, mass, mass, counts, 0.01)
    ones = torch.ones(len(rows), dtype=torch.float64)
    repeated = Problem(problem.features[rows], problem.targets[rows], 3, ones, ones, counts, 0.01)
    for name in ("ce", "isda", "icda"):
        heads = [fit_head(p, LossSettings(name), 500, 1e-9) for p in (weighted, repeated)]
        torch.testing.assert_close(heads[0].weight, heads[1].weight, atol=1e-5, rtol=0)
