"""The closed form against autograd through `icda.linear.objective`, which knows nothing of blocks and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import icda.linear.evaluation as evaluation
import icda.linear.rows as rows_module
from icda.linear.evaluation import make_objective, softmax_gradient_
from icda.linear.objective import LossSettings, adjustment, weighted_cross_entropy
from icda.linear.problem import Problem
from icda.linear.rows import StoredRows
from icda.statistics.grouping import LabelGroups
from icda.strength import Strength, direct_strength

NAMES = ("ce", "la", "isda", "risda", "icda")


def make_problem(size: int = 90, classes: int = 4, width: int = 6) -> Problem:
    torch.manual_seed(0)
    targets = torch.cat([torch.arange(classes), torch.randint(classes, (size - classes,))])
    features = torch.randn(size, width, dtype=torch.float64) + 0.4 * targets[:, None]
    weights, others = torch.rand(2, size, dtype=torch.float64) + 0.1
    counts = torch.bincount(targets, weights, minlength=classes)
    return Problem(features, targets, classes, weights, others, counts, decay=0.1)


def constants(problem: Problem) -> tuple[Strength, torch.Tensor]:
    torch.manual_seed(1)
    strength = direct_strength(problem.features, problem.targets, torch.randn(problem.num_classes, 6).double())
    return strength, torch.softmax(torch.randn(problem.num_classes, problem.num_classes).double(), 1)


def by_autograd(
    problem: Problem, settings: LossSettings, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[float, torch.Tensor, torch.Tensor]:
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    strength, relations = constants(problem)
    plain = problem.features @ weight.T
    groups = LabelGroups.of(problem.targets)
    counts = None if problem.log_prior is not None else problem.class_counts
    others = problem.statistics_weights
    phi = adjustment(settings, plain, problem.targets, groups, counts, strength, others, relations)
    adjusted = plain + bias + (0 if phi is None else phi)
    for constant in (problem.log_prior, problem.margins):
        adjusted = adjusted if constant is None else adjusted + constant
    value = weighted_cross_entropy(adjusted, problem.targets, problem.weights)
    return float(value.detach()), *torch.autograd.grad(value, (weight, bias))


@pytest.mark.parametrize("given", [(), ("margins",), ("log_prior",), ("margins", "log_prior")])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_are_those_of_autograd(
    name: str, classes: int, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 7 * 6 * 8)  # seven rows a chunk
    problem = make_problem(classes=classes)
    shapes = {"margins": (classes,), "log_prior": (90, classes)}
    problem = replace(problem, **{field: torch.randn(shapes[field], dtype=torch.float64) for field in given})
    settings = LossSettings(name, lam=0.7, beta=0.3, mean_strength=0.6)
    weight, bias = torch.randn(classes, 6, dtype=torch.float64), torch.randn(classes, dtype=torch.float64)
    found = make_objective(problem, settings, *constants(problem))(weight, bias)
    value, to_weight, to_bias = by_autograd(problem, settings, weight, bias)
    assert found.value == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(found.to_weight, to_weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.to_bias, to_bias, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_and_storage_do_not_change_the_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(size=2000)
    settings = LossSettings(name)
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    whole = make_objective(problem, settings, *constants(problem))(weight, bias)
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 300 * 6 * 8)
    monkeypatch.setattr(evaluation, "BLOCK_ELEMENTS", 4 * 300)
    stored = replace(problem, features=StoredRows(problem.features.numpy()))
    pieces = make_objective(stored, settings, *constants(problem))(weight, bias)
    assert pieces.value == pytest.approx(whole.value, rel=1e-13)
    torch.testing.assert_close(pieces.to_weight, whole.to_weight, rtol=0, atol=1e-13)


def test_two_calls_give_the_same_though_buffers_are_reused() -> None:
    problem = make_problem()
    objective = make_objective(problem, LossSettings("icda"), *constants(problem))
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    first = objective(weight, bias)
    objective(2 * weight, bias)
    again = objective(weight, bias)
    assert first.value == again.value
    assert torch.equal(first.to_weight, again.to_weight)


@pytest.mark.parametrize("name", ["la", "icda"])
def test_a_class_without_samples_takes_no_part(name: str) -> None:
    problem = make_problem(classes=3)
    wider = replace(problem, num_classes=4, class_counts=torch.cat([problem.class_counts, torch.zeros(1).double()]))
    strength, _ = constants(problem)
    padded = Strength(torch.nn.functional.pad(strength.per_class * 3 / 2, (0, 1)), strength.per_sample)
    weight, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    found = make_objective(wider, LossSettings(name), padded)(weight, bias)
    wanted = make_objective(problem, LossSettings(name), strength)(weight[:3], bias[:3])
    assert found.value == pytest.approx(wanted.value, rel=1e-12)
    torch.testing.assert_close(found.to_weight[:3], wanted.to_weight)
    assert not found.to_weight[3].any()


def test_counts_that_miss_a_class_of_the_samples_are_an_error() -> None:
    problem = replace(make_problem(), class_counts=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    with pytest.raises(ValueError, match="class_counts entry is 0"):
        make_objective(problem, LossSettings("la"))


def test_softmax_gradient_survives_large_logits() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]])
    value = softmax_gradient_(logits, torch.tensor([0, 0]), torch.tensor([0.5, 0.5]))
    assert value == pytest.approx(1e4)
    assert logits.tolist() == [[0.0, 0.0], [-0.5, 0.5]]


def borrowed_oracle(problem: Problem, settings: LossSettings, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """ICDA's or ISDA's loss, sample by sample, with covariances of features that are mixed as they stand."""
    strength, _ = constants(problem)
    features, classes, mixing = problem.features, problem.num_classes, problem.covariance_mixing
    assert mixing is not None
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
def test_borrowed_covariances_are_those_of_the_features_mixed(name: str) -> None:
    problem = make_problem(size=40, classes=3)
    problem = replace(problem, covariance_mixing=torch.softmax(torch.randn(3, 3).double(), 1))
    weight, bias = torch.randn(3, 6).double().requires_grad_(), torch.randn(3).double().requires_grad_()
    settings = LossSettings(name, lam=0.7, beta=0.3)  # type: ignore[arg-type]
    found = make_objective(problem, settings, constants(problem)[0])(weight.detach(), bias.detach())
    wanted = borrowed_oracle(problem, settings, weight, bias)
    assert found.value == pytest.approx(float(wanted.detach()), rel=1e-12)
    for mine, gradient in zip(
        (found.to_weight, found.to_bias), torch.autograd.grad(wanted, (weight, bias)), strict=True
    ):
        torch.testing.assert_close(mine, gradient, rtol=1e-9, atol=1e-12)


def test_mixing_by_the_identity_changes_nothing() -> None:
    problem = make_problem()
    weight, bias = torch.randn(4, 6).double(), torch.randn(4).double()
    plain = make_objective(problem, LossSettings("isda"))(weight, bias)
    mixed = make_objective(replace(problem, covariance_mixing=torch.eye(4)), LossSettings("isda"))(weight, bias)
    assert mixed.value == pytest.approx(plain.value, rel=1e-14)
    torch.testing.assert_close(mixed.to_weight, plain.to_weight, rtol=1e-12, atol=1e-14)
