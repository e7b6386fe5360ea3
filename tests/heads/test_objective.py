"""The closed forms against the losses themselves, which know nothing of blocks, tables and folds."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import icda.heads.objective as objective_module
import icda.heads.rows as rows_module
from icda import ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss, direct_strength
from icda.functional.grouping import LabelGroups
from icda.functional.tables import LogitMoments, boundary_variances, icda_logits, icda_table
from icda.heads import solver
from icda.heads.cross_fit import outside_folds
from icda.heads.objective import FoldObjective, to_rows
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.rows import StoredRows
from icda.heads.solver import LinearHead, fit_folds, fit_head

NAMES = ("ce", "la", "isda", "risda", "icda")
WIDTH = 6


def make_problem(size=90, classes=4):
    torch.manual_seed(0)
    targets = torch.cat([torch.arange(classes), torch.randint(classes, (size - classes,))])
    features = torch.randn(size, WIDTH, dtype=torch.float64) + 0.4 * targets[:, None]
    weights, others = torch.rand(2, size, dtype=torch.float64) + 0.1
    counts = torch.bincount(targets, weights, minlength=classes)
    return Problem(features, targets, classes, weights, others, counts, decay=0.1)


def with_strength(problem):
    torch.manual_seed(1)
    weight = torch.randn(problem.num_classes, WIDTH).double()
    return replace(problem, strength=direct_strength(problem.features, problem.targets, weight))


def relations_of(classes):
    return torch.softmax(torch.randn(classes, classes, generator=torch.Generator().manual_seed(2)).double(), 1)


def objective_of(problem, settings):
    """As a function of all rows of a head: the parameters of two classes are one row, their difference."""
    classes = problem.num_classes
    head = LinearHead.zeros(classes, WIDTH, torch.float64)
    objective = problem.objective(settings)
    if settings.name == "risda":
        objective.relations = relations_of(classes)
    elif settings.name == "icda":
        objective.follow(head)

    def evaluate(weight, bias):
        rows = to_rows(torch.cat([weight, bias[:, None]], 1)[None])
        slope = objective(rows[:, :-1].contiguous(), rows[:, -1])
        if classes > 2:
            return slope
        whole = [torch.cat([-part, part]) for part in (slope.to_weight, slope.to_bias)]
        return replace(slope, to_weight=whole[0], to_bias=whole[1])

    return evaluate


def by_the_losses(problem, settings, weight, bias):
    """Value and gradient of the mean loss by `icda.losses`, with full covariances and no bound on variances."""
    classes, targets = problem.num_classes, problem.targets
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    adjusted = problem.features @ weight.T + bias
    options = {"lambda0": settings.lam, "covariance": "full", "variance_bound": math.inf}
    loss = None
    if settings.name == "icda":
        loss = ICDALoss(classes, WIDTH, beta=settings.beta, class_margin=False, **options).double()
    elif settings.name == "isda":
        loss = ISDALoss(classes, WIDTH, **options).double()
    elif settings.name == "risda":
        loss = RISDALoss(classes, WIDTH, mean_strength=settings.mean_strength, **options).double()
        loss.set_confusion(relations_of(classes))
    if loss is not None:
        loss.statistics.update(problem.features, targets, problem.statistics_weights)
    if isinstance(loss, ICDALoss):
        adjusted = adjusted + loss.combine(targets, weight, 1.0, problem.strength)
    elif loss is not None:
        adjusted = adjusted + loss.eval().adjustment(problem.features, targets, (weight, None))
    if settings.name in ("la", "icda") and problem.log_prior is None:
        prior = LogitAdjustmentLoss(classes, WIDTH, problem.class_counts)
        adjusted = adjusted + prior.adjustment(problem.features, targets, (weight, None))
    for constant in (problem.log_prior, problem.margins):
        adjusted = adjusted if constant is None else adjusted + constant
    losses = F.cross_entropy(adjusted, targets, reduction="none")
    value = (problem.weights * losses).sum() / problem.weights.sum()
    return float(value.detach()), *torch.autograd.grad(value, (weight, bias))


@pytest.mark.parametrize("given", [(), ("margins",), ("log_prior",), ("margins", "log_prior")])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_a_head_minimises_the_very_loss_that_a_network_is_trained_with(name, classes, given, monkeypatch):
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 7 * WIDTH * 8)  # seven rows a chunk
    problem = with_strength(make_problem(classes=classes))
    shapes = {"margins": (classes,), "log_prior": (90, classes)}
    problem = replace(problem, **{field: torch.randn(shapes[field], dtype=torch.float64) for field in given})
    settings = LossSettings(name, lam=0.7, beta=0.3, mean_strength=0.6)
    weight, bias = torch.randn(classes, WIDTH, dtype=torch.float64), torch.randn(classes, dtype=torch.float64)
    if classes == 2:
        weight[0], bias[0] = -weight[1], -bias[1]
    found = objective_of(problem, settings)(weight, bias)
    value, to_weight, to_bias = by_the_losses(problem, settings, weight, bias)
    if classes == 2:  # along the difference of the rows, which is all that moves
        to_weight, to_bias = (0.5 * (part - part.flip(0)) for part in (to_weight, to_bias))
    assert found.value == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(found.to_weight, to_weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.to_bias, to_bias, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bound", [30.0, math.inf])
def test_the_bound_on_variances_belongs_to_steps_and_changes_nothing_where_it_does_not_act(bound):
    """Mathematics 2.5: a fitted head has no bound; `ICDALoss` is the same function wherever its bound does not act."""
    problem = make_problem()
    head = fit_head(problem, LossSettings("icda"), 500, 1e-9)
    problem = replace(problem, strength=problem.angles(head))
    found = objective_of(problem, LossSettings("icda"))(head.weight, head.bias)
    loss = ICDALoss(4, WIDTH, problem.class_counts, covariance="full", variance_bound=bound, reduction="none").double()
    loss.statistics.update(problem.features, problem.targets, problem.statistics_weights)
    losses = loss.eval()(problem.features, problem.targets, (head.weight, head.bias))
    assert found.value == pytest.approx(float((problem.weights * losses).sum() / problem.weights.sum()), rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_and_storage_do_not_change_the_result(name, monkeypatch):
    problem, settings = with_strength(make_problem(size=2000)), LossSettings(name)
    weight, bias = torch.randn(4, WIDTH, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    whole = objective_of(problem, settings)(weight, bias)
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 300 * WIDTH * 8)
    monkeypatch.setattr(objective_module, "BLOCK_ELEMENTS", 4 * 300)
    for features in (problem.features, StoredRows(problem.features.numpy())):
        pieces = objective_of(replace(problem, features=features), settings)(weight, bias)
        assert pieces.value == pytest.approx(whole.value, rel=1e-13)
        torch.testing.assert_close(pieces.to_weight, whole.to_weight, rtol=0, atol=1e-13)
    monkeypatch.setattr(objective_module, "SORTED_BYTES", 0)
    unsorted = objective_of(problem, settings)(weight, bias)
    torch.testing.assert_close(unsorted.to_weight, whole.to_weight, rtol=0, atol=1e-13)


def test_two_calls_give_the_same_though_buffers_are_reused():
    objective = objective_of(with_strength(make_problem()), LossSettings("icda"))
    weight, bias = torch.randn(4, WIDTH, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    first = objective(weight, bias)
    objective(2 * weight, bias)
    again = objective(weight, bias)
    assert first.value == again.value
    assert torch.equal(first.to_weight, again.to_weight)


@pytest.mark.parametrize("name", ["la", "icda"])
def test_a_class_without_samples_takes_no_part(name):
    problem = with_strength(make_problem(classes=3))
    counts = torch.cat([problem.class_counts, torch.zeros(1).double()])
    padded = problem.strength._replace(per_class=F.pad(problem.strength.per_class * 3 / 2, (0, 1)))
    wider = replace(problem, num_classes=4, class_counts=counts, strength=padded)
    weight, bias = torch.randn(4, WIDTH, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    found = objective_of(wider, LossSettings(name))(weight, bias)
    wanted = objective_of(problem, LossSettings(name))(weight[:3], bias[:3])
    assert found.value == pytest.approx(wanted.value, rel=1e-12)
    torch.testing.assert_close(found.to_weight[:3], wanted.to_weight)
    assert not found.to_weight[3].any()


def test_counts_that_miss_a_class_of_the_samples_are_an_error():
    problem = replace(make_problem(), class_counts=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    with pytest.raises(ValueError, match="count of zero"):
        problem.constants("la")


@pytest.mark.parametrize("classes", [2, 3])
def test_large_logits_neither_overflow_nor_lose_the_gradient(classes):
    features = torch.tensor([[1.0], [-1.0]])
    problem = Problem.of(features, torch.tensor([0, 0]), classes, C=1.0)
    problem = replace(problem, class_counts=torch.ones(classes).double())
    weight = torch.zeros(classes, 1)
    weight[0], weight[1] = 1e4, -1e4
    rows = to_rows(torch.cat([weight, torch.zeros(classes, 1)], 1)[None])
    slope = problem.objective(LossSettings("ce"))(rows[:, :-1].contiguous(), rows[:, -1])
    assert slope.value == pytest.approx(1e4)
    assert torch.isfinite(slope.to_weight).all()


def borrowed_oracle(problem, settings, weight, bias):
    """ICDA's or ISDA's loss, sample by sample, with covariances of features that are mixed as they stand."""
    strength = problem.strength
    features, classes, mixing = problem.features, problem.num_classes, problem.covariance_mixing
    means, own = [], []
    for c in range(classes):
        rows, share = features[problem.targets == c], problem.statistics_weights[problem.targets == c]
        means.append((share[:, None] * rows).sum(0) / share.sum())
        own.append((share[:, None] * (rows - means[c])).T @ (rows - means[c]) / share.sum())
    sigma = [sum(mixing[j, k] * own[k] for k in range(classes)) for j in range(classes)]
    prior, total = problem.class_counts.log(), torch.zeros((), dtype=torch.float64)
    for i, y in enumerate(problem.targets.tolist()):
        logits = []
        for c in range(classes):
            d, value = weight[c] - weight[y], features[i] @ weight[c] + bias[c]
            value = value + settings.lam / 2 * d @ sigma[y] @ d
            if settings.name == "icda" and c != y:
                towards = strength.per_class[i] / (classes - 1)
                value = value + settings.lam / 2 * sum(towards[j] * d @ sigma[j] @ d for j in range(classes) if j != y)
                value = value + settings.lam * towards[c] * d @ means[c] + prior[c] - prior[y]
                value = value + settings.beta * strength.per_sample[i]
            logits.append(value)
        total = total + problem.weights[i] * (torch.stack(logits).logsumexp(0) - logits[y])
    return total / problem.weights.sum()


@pytest.mark.parametrize("name", ["isda", "icda"])
def test_borrowed_covariances_are_those_of_the_features_mixed(name):
    problem = with_strength(make_problem(size=40, classes=3))
    problem = replace(problem, covariance_mixing=torch.softmax(torch.randn(3, 3).double(), 1))
    weight, bias = torch.randn(3, 6).double().requires_grad_(), torch.randn(3).double().requires_grad_()
    settings = LossSettings(name, lam=0.7, beta=0.3)
    found = objective_of(problem, settings)(weight.detach(), bias.detach())
    wanted = borrowed_oracle(problem, settings, weight, bias)
    assert found.value == pytest.approx(float(wanted.detach()), rel=1e-12)
    for mine, gradient in zip(
        (found.to_weight, found.to_bias), torch.autograd.grad(wanted, (weight, bias)), strict=True
    ):
        torch.testing.assert_close(mine, gradient, rtol=1e-9, atol=1e-12)


def test_mixing_by_the_identity_changes_nothing():
    problem = make_problem()
    weight, bias = torch.randn(4, WIDTH).double(), torch.randn(4).double()
    plain = objective_of(problem, LossSettings("isda"))(weight, bias)
    mixed = objective_of(replace(problem, covariance_mixing=torch.eye(4)), LossSettings("isda"))(weight, bias)
    assert mixed.value == pytest.approx(plain.value, rel=1e-14)
    torch.testing.assert_close(mixed.to_weight, plain.to_weight, rtol=1e-12, atol=1e-14)


def test_weights_in_the_moments_equal_repetition():
    problem = make_problem()
    logits = problem.features @ torch.randn(WIDTH, 4).double()
    repeats = torch.randint(1, 4, (90,))
    weighted = LogitMoments.of(logits, LabelGroups.of(problem.targets, 4), repeats.double())
    rows = torch.arange(90).repeat_interleave(repeats)
    ones = torch.ones(len(rows), dtype=torch.float64)
    repeated = LogitMoments.of(logits[rows], LabelGroups.of(problem.targets[rows], 4), ones)
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.covariance, repeated.covariance)


def test_a_boundary_variance_is_the_variance_of_a_logit_difference():
    problem = make_problem()
    logits = problem.features @ torch.randn(WIDTH, 4).double()
    moments = LogitMoments.of(logits, LabelGroups.of(problem.targets, 4), torch.ones(90).double())
    table = boundary_variances(moments.covariance)
    for j in range(4):
        rows = logits[problem.targets == j]
        for y in range(4):
            for c in range(4):
                assert torch.isclose(table[y, j, c], (rows[:, c] - rows[:, y]).var(correction=0), atol=1e-12)


def test_the_differentiable_form_of_the_table_is_that_of_the_loss():
    problem = with_strength(make_problem())
    weight, groups = torch.randn(4, WIDTH).double(), LabelGroups.of(problem.targets, 4)
    moments = LogitMoments.of(problem.features @ weight.T, groups, problem.statistics_weights)
    found = icda_logits(icda_table(moments, 0.7), groups, problem.strength, 0.3)
    loss = ICDALoss(4, WIDTH, lambda0=0.7, beta=0.3, covariance="full", variance_bound=math.inf).double()
    loss.statistics.update(problem.features, problem.targets, problem.statistics_weights)
    torch.testing.assert_close(found, loss.combine(problem.targets, weight, 1.0, problem.strength))


def make_fold_problem(classes, prior=False):
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
def test_heads_side_by_side_have_the_losses_and_slopes_of_each_alone(name, classes, prior):
    problem, settings = make_fold_problem(classes, prior), LossSettings(name)
    problem = replace(problem, margins=torch.linspace(0, 0.3, classes, dtype=torch.float64))
    inside = outside_folds(problem.targets, 3, seed=1)
    heads = torch.randn(3, classes, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rows = to_rows(heads)
    found = FoldObjective(problem, settings, inside)(rows[:, :-1].contiguous(), rows[:, -1])
    parts = [
        problem.rows(mask).objective(settings)(part[:, :-1].contiguous(), part[:, -1])
        for mask, part in zip(inside, rows.view(3, -1, 6), strict=True)
    ]
    assert found.value == pytest.approx(sum(part.value for part in parts), abs=1e-12)
    torch.testing.assert_close(found.to_weight, torch.cat([part.to_weight for part in parts]), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.to_bias, torch.cat([part.to_bias for part in parts]), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["ce", "la"])
@pytest.mark.parametrize("classes", [2, 4])
def test_each_head_is_the_optimum_of_its_own_fold(name, classes):
    problem, settings = make_fold_problem(classes), LossSettings(name)
    inside = outside_folds(problem.targets, 4, seed=0)
    heads = fit_folds(problem, settings, inside, 500, 1e-9)
    for head, mask in zip(heads, inside, strict=True):
        alone = fit_head(problem.rows(mask), settings, 500, 1e-9)
        torch.testing.assert_close(head.weight, alone.weight, atol=1e-6, rtol=0)
        torch.testing.assert_close(head.bias, alone.bias, atol=1e-6, rtol=0)
        assert head.converged


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fold_that_lacks_a_class_gives_it_no_chance_and_stays_finite(classes):
    problem = make_fold_problem(classes)
    inside = torch.stack([problem.targets != 1, torch.ones(120, dtype=torch.bool)])
    heads = fit_folds(problem, LossSettings("la"), inside, 500, 1e-9)
    alone = fit_head(problem.rows(inside[0]), LossSettings("la"), 500, 1e-9)
    torch.testing.assert_close(heads[0].weight, alone.weight, atol=1e-6, rtol=0)
    assert all(torch.isfinite(head.weight).all() for head in heads)


def test_many_classes_and_other_losses_go_one_fold_after_the_other(monkeypatch):
    problem = make_fold_problem(4)
    inside = outside_folds(problem.targets, 2, seed=0)
    together = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-9)
    monkeypatch.setattr(solver, "MOST_ROWS", 7)
    for one, other in zip(fit_folds(problem, LossSettings("ce"), inside, 500, 1e-9), together, strict=True):
        torch.testing.assert_close(one.weight, other.weight, atol=1e-6, rtol=0)
    alone = fit_head(problem.rows(inside[1]), LossSettings("icda"), 100, 1e-4)
    assert torch.equal(fit_folds(problem, LossSettings("icda"), inside)[1].weight, alone.weight)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_start_at_the_optimum_needs_no_iteration(classes):
    problem = make_fold_problem(classes)
    inside = outside_folds(problem.targets, 3, seed=0)
    heads = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-8)
    again = fit_folds(problem, LossSettings("ce"), inside, 500, 1e-6, starts=heads)
    assert again[0].iterations == 0
    torch.testing.assert_close(again[2].weight, heads[2].weight, atol=1e-7, rtol=0)
