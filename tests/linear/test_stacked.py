"""Heads of several folds, fitted side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from icda.linear import stacked
from icda.linear.balance import rebalance
from icda.linear.cross_fit import outside_folds
from icda.linear.evaluation import make_objective
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.rows import StoredRows
from icda.linear.solver import fit_head
from icda.linear.stacked import StackedObjective, fit_folds


def make_problem(classes: int, prior: bool = False) -> Problem:
    generator = torch.Generator().manual_seed(classes)
    targets = torch.cat([torch.arange(90) % classes, torch.zeros(30, dtype=torch.long)])
    features = torch.randn(120, 5, generator=generator, dtype=torch.float64) + 0.5 * targets[:, None]
    weights = torch.rand(120, generator=generator, dtype=torch.float64) + 0.5
    counts = torch.bincount(targets, weights)
    problem = Problem(features, targets, classes, weights, weights, counts, 0.01)
    return rebalance(problem, torch.arange(120) % 2, "prior") if prior else problem


@pytest.mark.parametrize("name", ["ce", "la"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("prior", [False, True])
def test_the_stacked_loss_is_the_sum_of_the_folds_losses_and_so_are_its_slopes(
    name: str, classes: int, prior: bool
) -> None:
    problem, settings = make_problem(classes, prior), LossSettings(name)  # type: ignore[arg-type]
    problem = replace(problem, margins=torch.linspace(0, 0.3, classes, dtype=torch.float64))
    inside = outside_folds(problem.targets, 3, seed=1)
    basis = torch.tensor([[-0.5], [0.5]], dtype=torch.float64) if classes == 2 else None
    rows = 1 if classes == 2 else classes
    head = torch.randn(3, rows, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    parts = [
        make_objective(problem.rows(mask), settings, basis=basis)(part[:, :-1], part[:, -1])
        for mask, part in zip(inside, head, strict=True)
    ]
    flat = head.flatten(0, 1)
    found = StackedObjective(problem, settings, inside)(flat[:, :-1].contiguous(), flat[:, -1])
    assert found.value == pytest.approx(sum(part.value for part in parts), abs=1e-12)
    torch.testing.assert_close(found.to_weight, torch.cat([part.to_weight for part in parts]), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.to_bias, torch.cat([part.to_bias for part in parts]), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["ce", "la"])
@pytest.mark.parametrize("classes", [2, 4])
def test_each_head_is_the_optimum_of_its_own_fold(name: str, classes: int) -> None:
    problem, settings = make_problem(classes), LossSettings(name)  # type: ignore[arg-type]
    inside = outside_folds(problem.targets, 4, seed=0)
    heads = fit_folds(problem, settings, inside, 500, 1e-9)
    for head, mask in zip(heads, inside, strict=True):
        alone = fit_head(problem.rows(mask), settings, 500, 1e-9)
        torch.testing.assert_close(head.weight, alone.weight, atol=1e-6, rtol=0)
        torch.testing.assert_close(head.bias, alone.bias, atol=1e-6, rtol=0)
        assert head.converged


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fold_that_lacks_a_class_gives_it_no_chance_and_stays_finite(classes: int) -> None:
    problem = make_problem(classes)
    inside = torch.stack([problem.targets != 1, torch.ones(120, dtype=torch.bool)])
    heads = fit_folds(problem, LossSettings("la"), inside, 500, 1e-9)
    alone = fit_head(problem.rows(inside[0]), LossSettings("la"), 500, 1e-9)
    torch.testing.assert_close(heads[0].weight, alone.weight, atol=1e-6, rtol=0)
    assert all(torch.isfinite(head.weight).all() for head in heads)


def test_held_out_samples_change_nothing() -> None:
    problem = make_problem(3)
    inside = outside_folds(problem.targets, 2, seed=0)[:1]
    moved = problem.features.clone()
    moved[~inside[0]] += 100
    before, after = (
        fit_folds(replace(problem, features=features), LossSettings("ce"), inside)[0]
        for features in (problem.features, moved)
    )
    torch.testing.assert_close(before.weight, after.weight, atol=1e-12, rtol=0)


def test_many_classes_and_other_losses_go_one_fold_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(4)
    inside = outside_folds(problem.targets, 2, seed=0)
    together = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-9)
    monkeypatch.setattr(stacked, "MOST_ROWS", 7)
    for one, other in zip(fit_folds(problem, LossSettings("ce"), inside, 500, 1e-9), together, strict=True):
        torch.testing.assert_close(one.weight, other.weight, atol=1e-6, rtol=0)
    alone = fit_head(problem.rows(inside[1]), LossSettings("icda"), 100, 1e-4)
    assert torch.equal(fit_folds(problem, LossSettings("icda"), inside)[1].weight, alone.weight)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_start_at_the_optimum_needs_no_iteration(classes: int) -> None:
    problem = make_problem(classes)
    inside = outside_folds(problem.targets, 3, seed=0)
    heads = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-8)
    again = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-6, starts=heads)
    assert again[0].iterations == 0
    torch.testing.assert_close(again[2].weight, heads[2].weight, atol=1e-7, rtol=0)


def test_rows_on_disk_give_the_heads_of_rows_in_memory() -> None:
    problem = make_problem(3)
    inside = outside_folds(problem.targets, 3, seed=0)
    stored = replace(problem, features=StoredRows(problem.features.numpy()))
    pairs = zip(*(fit_folds(part, LossSettings("la"), inside) for part in (problem, stored)), strict=True)
    for memory, disk in pairs:
        torch.testing.assert_close(memory.weight, disk.weight, atol=1e-12, rtol=0)
