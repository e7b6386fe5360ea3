from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import icda.heads.rows as rows_module
from icda.functional.strength import direct_strength
from icda.heads.problem import LossSettings, Problem
from icda.heads.rows import StoredRows
from icda.heads.solver import LinearHead, fit_head


def make_problem(classes=3, decay=0.01):
    generator = torch.Generator().manual_seed(1)
    targets = torch.arange(120) % classes
    features = torch.randn(120, 5, generator=generator, dtype=torch.float64) + targets[:, None] * 0.5
    return Problem.plain(features, targets, classes, decay)


def test_cross_entropy_finds_the_optimum_of_logistic_regression():
    problem = make_problem()
    head = fit_head(problem, LossSettings("ce"), max_iter=500, tol=1e-8)
    reference = LogisticRegression(C=1 / (0.01 * 120), tol=1e-10, max_iter=1000)
    reference.fit(problem.features.numpy(), problem.targets.numpy())
    found = torch.softmax(head.logits(problem.features), 1).numpy()
    np.testing.assert_allclose(found, reference.predict_proba(problem.features.numpy()), atol=1e-5)
    assert head.converged


@pytest.mark.parametrize("name", ["ce", "la", "isda", "icda"])
def test_every_small_step_away_from_the_solution_raises_the_value(name):
    problem = make_problem()
    # Strengths held fixed, so that all heads are judged by one function.
    fixed = direct_strength(problem.features, problem.targets, torch.ones(3, 5, dtype=torch.float64).tril())
    problem = replace(problem, strength=fixed)
    settings = LossSettings(name, lam=0.3)

    def value(head):
        return fit_head(problem, settings, max_iter=0, rounds=1, start=head).value

    best = fit_head(problem, settings, max_iter=1000, tol=1e-9, rounds=1)
    lowest = value(best)
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        aside = 1e-2 * torch.randn(3, 5, generator=generator, dtype=torch.float64)
        assert value(LinearHead(best.weight + aside, best.bias)) > lowest + 1e-8
    short = fit_head(
        problem, settings, max_iter=2, tol=1e-9, rounds=1, start=LinearHead(0 * best.weight, 0 * best.bias)
    )
    assert short.value > lowest + 1e-6, "a fit that was cut short must be seen to be worse"


def test_icda_without_augmentation_and_margin_is_logit_adjustment():
    problem = make_problem()
    icda = fit_head(problem, LossSettings("icda", lam=0.0, beta=0.0), 500, 1e-8)
    la = fit_head(problem, LossSettings("la"), 500, 1e-8)
    torch.testing.assert_close(icda.weight, la.weight, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["ce", "la", "isda", "risda", "icda"])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_rows_on_disk_give_the_value_and_head_of_rows_in_memory(name, dtype, atol, monkeypatch):
    problem = make_problem()
    parts = {key: getattr(problem, key).to(dtype) for key in ("features", "weights", "statistics_weights")}
    problem = replace(problem, **parts)
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 11 * 5 * dtype.itemsize)
    stored = replace(problem, features=StoredRows(problem.features.numpy()))
    heads = [fit_head(part, LossSettings(name), max_iter=4, tol=0, rounds=1) for part in (problem, stored)]
    torch.testing.assert_close(heads[0].weight, heads[1].weight, atol=10 * atol, rtol=0)
    assert heads[0].value == pytest.approx(heads[1].value, abs=atol)
    chosen = torch.arange(120) % 3 < 2
    torch.testing.assert_close(
        heads[0].logits(stored.features[chosen]), heads[0].logits(problem.features[chosen]), atol=10 * atol, rtol=0
    )


@pytest.mark.parametrize("name", ["ce", "la", "isda", "icda"])  # RISDA's confusions depend on the start
def test_two_classes_have_opposite_rows_wherever_the_fit_starts(name):
    problem = make_problem(classes=2)
    fixed = direct_strength(problem.features, problem.targets, torch.eye(2, 5, dtype=torch.float64))
    problem = replace(problem, strength=fixed)
    settings = LossSettings(name, lam=0.3)
    one_row = fit_head(problem, settings, max_iter=500, tol=1e-9)
    assert torch.equal(one_row.weight[0], -one_row.weight[1])
    aside = LinearHead(one_row.weight + 0.1 * torch.eye(2, 5), one_row.bias + torch.tensor([0.1, 0.0]))
    two_rows = fit_head(problem, settings, max_iter=500, tol=1e-9, start=aside)
    torch.testing.assert_close(two_rows.weight, one_row.weight, atol=1e-6, rtol=0)
    assert two_rows.value == pytest.approx(one_row.value, abs=1e-10)


def test_icda_ends_at_a_head_that_its_own_strengths_agree_with():
    problem = make_problem()
    head = fit_head(problem, LossSettings("icda", lam=0.3), max_iter=500, tol=1e-7, rounds=20)
    objective = problem.objective(LossSettings("icda", lam=0.3))
    objective.follow(head)
    slope = objective(head.weight, head.bias)
    assert float((slope.to_weight + problem.decay * head.weight).abs().max()) < 1e-5
