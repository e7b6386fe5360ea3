"""IB-IRM: what it adds to IRM, from when on, and what is left without it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from icda.methods.domain_penalty import IBIRM, IRM
from support import domain_setup, make_context, make_grouped

SETUP = domain_setup()
GROUPS = [0, 1, 2, 3, 0, 1, 0, 2, 2, 3, 0]


def naive_variance(features: Tensor, groups: list[int]) -> float:
    """mean over domains of two samples or more, then over features, of sum (h - mean)^2 / (n - 1)."""
    by_domain: list[float] = []
    for domain in (0, 1):
        rows = [features[row].tolist() for row, group in enumerate(groups) if group % 2 == domain]
        if len(rows) < 2:
            continue
        columns = list(zip(*rows, strict=True))
        total = 0.0
        for column in columns:
            mean = sum(column) / len(column)
            total += sum((value - mean) ** 2 for value in column) / (len(column) - 1)
        by_domain.append(total / len(columns))
    return sum(by_domain) / len(by_domain) if by_domain else 0.0


@pytest.mark.parametrize(
    "groups",
    [GROUPS, [0, 1, 2], [0, 0, 2, 2], [1, 0], [3]],
    ids=["two domains", "one of a single sample", "one domain", "two single samples", "one sample"],
)
@pytest.mark.parametrize(("iteration", "weight"), [(0, 0.0), (499, 0.0), (500, 30.0), (9999, 30.0)])
def test_it_is_irm_plus_the_variance_of_the_features_after_the_first_steps(
    iteration: int, weight: float, groups: list[int]
) -> None:
    output, batch = make_grouped(groups, seed=8)
    irm = IRM(SETUP).loss(output, batch, make_context(iteration=iteration))
    found = IBIRM(SETUP, ib=30.0).loss(output, batch, make_context(iteration=iteration))
    added = weight * naive_variance(output.features.detach(), groups)
    assert float(found.detach()) == pytest.approx(float(irm.detach()) + added, rel=1e-12)
    gradients = torch.autograd.grad(found, [output.features, output.logits], allow_unused=True)
    assert all(gradient is None or torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("iteration", [0, 500])
def test_without_bottleneck_it_is_irm_bit_for_bit(iteration: int) -> None:
    output, batch = make_grouped(GROUPS, seed=8)
    found = IBIRM(SETUP, ib=0.0).loss(output, batch, make_context(iteration=iteration))
    assert torch.equal(found, IRM(SETUP).loss(output, batch, make_context(iteration=iteration)))


def test_the_gradient_pulls_every_feature_to_the_mean_of_its_domain() -> None:
    """d(mean_e mean_a Var)/dh = 2 (h - mean of its domain) / (E A (n_e - 1))."""
    output, batch = make_grouped(GROUPS, seed=8)
    method = IBIRM(SETUP, penalty=0.0, ib=5.0, anneal_steps=0)
    (found,) = torch.autograd.grad(method.loss(output, batch, make_context()), output.features)
    features, domains = output.features.detach(), torch.tensor(GROUPS) % 2
    for row in range(len(GROUPS)):
        own = features[domains == domains[row]]
        wanted = 5.0 * 2 * (features[row] - own.mean(0)) / (2 * 4 * (len(own) - 1))
        torch.testing.assert_close(found[row], wanted, rtol=1e-10, atol=1e-13)


def test_a_share_of_training_delays_both_terms() -> None:
    method = IBIRM(SETUP, penalty=7.0, ib=3.0, anneal_steps=0.25)
    output, batch = make_grouped(GROUPS, seed=8)
    bottleneck = naive_variance(output.features.detach(), GROUPS)
    for progress, (weight, ib) in {0.24: (1.0, 0.0), 0.25: (7.0, 3.0)}.items():
        irm = IRM(SETUP, penalty=weight, anneal_steps=0).loss(output, batch, make_context())
        found = method.loss(output, batch, make_context(iteration=9999, progress=progress))
        assert float(found.detach()) == pytest.approx(float(irm.detach()) + ib * bottleneck, rel=1e-12)
