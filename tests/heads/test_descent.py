"""L-BFGS in the features' coordinates and in those of a metric."""

from dataclasses import replace

import pytest
import torch

from icda.errors import OperationError
from icda.heads import solver
from icda.heads.descent import Coordinates, descend
from icda.heads.objective import Slope
from icda.heads.problem import LossSettings, Problem
from icda.heads.rows import StoredRows
from icda.heads.solver import find_metric, fit_head


def make_problem(count=400, dtype=torch.float64):
    """Correlated features, off centre, as those of an encoder are."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % 4
    scale = torch.arange(1, 9, dtype=torch.float64) ** -1.5
    mixing = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64))[0]
    hidden = torch.randn(count, 8, generator=generator, dtype=torch.float64) + 0.4 * targets[:, None]
    features = ((hidden * scale) @ mixing + 0.3).to(dtype)
    return Problem.of(features, targets, 4, C=1.0)


def make_metric(lam):
    metric = Coordinates.of(make_problem().features, 0.01, 0.25)
    near = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return metric.stretched(near, lam).scaled(3.0) if lam else metric


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_coordinates_go_to_the_head_and_back(lam):
    metric = make_metric(lam)
    head = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(metric.to_head(metric.from_head(head)), head, atol=1e-10, rtol=0)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_the_slope_in_coordinates_is_that_of_the_composed_function(lam):
    metric = make_metric(lam)
    generator = torch.Generator().manual_seed(1)
    unknowns = torch.randn(4, 9, dtype=torch.float64, generator=generator).requires_grad_()
    towards = torch.randn(4, 9, dtype=torch.float64, generator=generator)
    (metric.to_head(unknowns) * towards).sum().backward()
    torch.testing.assert_close(metric.slope(towards), unknowns.grad, atol=1e-10, rtol=0)


def test_turned_features_have_equal_variances():
    problem = make_problem(4000)
    metric = Coordinates.of(problem.features, 1e-9, 0.25)
    turned = (problem.features - metric.mean) @ metric.turn.T
    variances = turned.var(0)
    assert float(variances.max() / variances.min()) < 1.5, "but for the ridge they are equal"
    assert float(problem.features.var(0).max() / problem.features.var(0).min()) > 3


@pytest.mark.parametrize("name", ["ce", "la", "isda", "icda"])
def test_a_metric_changes_the_way_and_not_the_optimum(name, monkeypatch):
    problem, settings = make_problem(), LossSettings(name)
    plain = fit_head(problem, settings, 2000, 1e-9, rounds=6)
    monkeypatch.setattr(solver, "LEAST_WORK", 0)
    monkeypatch.setattr(solver, "LEAST_AUGMENTED", 0)
    turned = fit_head(problem, settings, 2000, 1e-9, rounds=6)
    assert turned.iterations < plain.iterations
    torch.testing.assert_close(turned.weight, plain.weight, atol=2e-5, rtol=0)
    # ICDA's strengths are read off the head: what is left between two heads, some 1e-7, counts in first order.
    assert turned.value == pytest.approx(plain.value, abs=1e-8 if name == "icda" else 1e-9)


@pytest.mark.parametrize("name", ["ce", "la", "isda", "icda"])
@pytest.mark.parametrize("C", [0.001, 1.0, 100.0])
def test_at_the_default_tolerance_the_value_is_no_worse(name, C, monkeypatch):
    whole = make_problem(2000, torch.float32)
    problem, settings = Problem.of(whole.features, whole.targets, 4, C), LossSettings(name)
    fixed = problem.angles(fit_head(problem, LossSettings("la")))  # so that both minimise one function
    problem = replace(problem, strength=fixed)
    plain = fit_head(problem, settings, 500, 1e-4)
    monkeypatch.setattr(solver, "LEAST_WORK", 0)
    monkeypatch.setattr(solver, "LEAST_AUGMENTED", 0)
    turned = fit_head(problem, settings, 500, 1e-4)
    assert turned.converged
    assert turned.value <= plain.value + 1e-5


def test_a_start_that_is_flat_already_is_kept_to_the_bit():
    problem = make_problem()
    objective = problem.objective(LossSettings("ce"))
    metric = Coordinates.of(problem.features, problem.decay, 0.25)
    begin = torch.zeros(4, 9, dtype=torch.float64)
    found = descend(objective, begin, problem.decay, 500, 1e-9, 10, metric)
    again = descend(objective, found.parameters, problem.decay, 500, 1e-8, 10, metric)
    assert again.iterations == 0
    assert torch.equal(again.parameters, found.parameters)
    assert again.converged


def test_a_metric_is_looked_for_only_where_it_pays():
    wide = Problem.of(torch.zeros(1, 1).expand(1000, 2048), torch.arange(1000) % 100, 100, C=1.0)
    assert find_metric(wide) is None, "2048^2 is more than 1000 rows and 100 classes are worth"
    assert find_metric(make_problem()) is None, "the whole fit takes less time"


def test_rows_on_disk_have_the_metric_of_rows_in_memory(monkeypatch):
    monkeypatch.setattr(solver, "LEAST_WORK", 0)
    monkeypatch.setattr(solver, "LEAST_AUGMENTED", 0)
    problem = make_problem()
    stored = replace(problem, features=StoredRows(problem.features.numpy()))
    metrics = [find_metric(each) for each in (problem, stored)]
    assert torch.equal(metrics[0].turn, metrics[1].turn)


def test_a_constant_feature_leaves_the_metric_finite():
    features = torch.zeros(50, 3, dtype=torch.float64)
    assert torch.isfinite(Coordinates.of(features, 0.0, 0.5).turn).all()


def test_a_loss_that_is_not_finite_is_said():
    def infinite(weight, bias):
        return Slope(float("inf"), torch.zeros_like(weight), torch.zeros_like(bias))

    with pytest.raises(OperationError, match="NaN or infinite"):
        descend(infinite, torch.zeros(2, 3), 0.1, 5, 1e-4, 10)
