"""IRM: the closed form of its gradient, two half batches, when the penalty weighs what; and what IB-IRM adds to it."""

import math

import pytest
import torch
from torch.nn import functional as F

from icda.methods import Setup
from icda.methods.domain_penalty import DomainPart
from icda.methods.ib_irm import IBIRM
from icda.methods.irm import IRM, invariance_penalty, scale_gradient
from icda.models.base import Output
from support import domain_setup, make_context, make_grouped

# Four groups of class x attribute; the attribute, which is the domain, is the group's number modulo 2.
SETUP = domain_setup()
GROUPS = [0, 1, 2, 3, 0, 1, 0, 2, 2, 3, 0]  # domain 0 has seven samples, domain 1 four


def make_batch(groups=None):
    return make_grouped(GROUPS if groups is None else groups, seed=3, scale=3.0)


def naive_loss(rows, logits, targets):
    total = 0.0
    for row in rows:
        weights = [math.exp(value) for value in logits[row].tolist()]
        total -= math.log(weights[int(targets[row])] / sum(weights))
    return total / len(rows)


def naive_scale_gradient(rows, logits, targets):
    total = 0.0
    for row in rows:
        values = logits[row].tolist()
        weights = [math.exp(value) for value in values]
        for c, value in enumerate(values):
            total += (weights[c] / sum(weights) - (c == int(targets[row]))) * value
    return total / len(rows)


def naive_irm(logits, targets, groups, weight):
    losses, products = [], []
    for domain in (0, 1):
        rows = [row for row, group in enumerate(groups) if group % 2 == domain]
        if rows:
            losses.append(naive_loss(rows, logits, targets))
        if len(rows) > 1:
            halves = [naive_scale_gradient(half, logits, targets) for half in (rows[::2], rows[1::2])]
            products.append(halves[0] * halves[1])
    penalty = sum(products) / len(products) if products else 0.0
    return sum(losses) / len(losses) + weight * penalty


def double_backward_penalty(logits, targets):
    """The penalty of one domain as the papers' codes have it: a factor of the logits, differentiated twice."""
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    losses = [F.cross_entropy(logits[start::2] * factor, targets[start::2]) for start in (0, 1)]
    first, second = (torch.autograd.grad(loss, factor, create_graph=True)[0] for loss in losses)
    return first * second


def test_the_closed_form_is_the_derivative_by_a_factor_of_the_logits():
    output, batch = make_batch()
    step = 1e-6
    high, low = (F.cross_entropy(output.logits * (1 + sign * step), batch.targets) for sign in (1, -1))
    found = scale_gradient(output.logits, batch.targets).detach()
    assert float(found) == pytest.approx(float((high - low).detach()) / (2 * step), rel=1e-7)
    assert float(found) == pytest.approx(naive_scale_gradient(list(range(11)), output.logits, batch.targets), rel=1e-12)


def test_a_network_that_answers_the_class_shares_of_a_domain_satisfies_the_penalty():
    """The trap of the documentation: such a network may know nothing but the domain."""
    targets = torch.tensor([0, 0, 0, 1, 1, 2])
    shares = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64) / 6
    assert float(scale_gradient(shares.log().expand(6, 3), targets)) == pytest.approx(0.0, abs=1e-15)
    sure = (2 * shares.log()).expand(6, 3)  # too sure of itself: a smaller factor would be better
    assert float(scale_gradient(sure, targets)) > 0.01


def test_value_and_gradient_of_the_penalty_are_those_of_double_backward():
    output, batch = make_batch()
    domains = torch.tensor(GROUPS) % 2
    cut = [(output.features[domains == d], output.logits[domains == d], batch.targets[domains == d]) for d in (0, 1)]
    found = invariance_penalty([DomainPart(*part) for part in cut])
    wanted = (double_backward_penalty(*cut[0][1:]) + double_backward_penalty(*cut[1][1:])) / 2
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(value, output.logits, retain_graph=True)[0] for value in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)
    assert gradients[1].abs().min() > 0, "a test in which a sample has no gradient would show nothing of it"


def test_the_gradient_is_that_of_finite_differences():
    output, batch = make_batch()
    method, context = IRM(SETUP), make_context(iteration=500)
    assert torch.autograd.gradcheck(
        lambda logits: method.loss(Output(output.features, logits), batch, context), output.logits
    )


@pytest.mark.parametrize(
    "groups",
    [GROUPS, [0, 1, 2], [0, 0, 2, 2], [1, 0], [3]],
    ids=["two domains", "one of a single sample", "one domain", "two single samples", "one sample"],
)
@pytest.mark.parametrize(("iteration", "weight"), [(0, 1.0), (499, 1.0), (500, 100.0), (9999, 100.0)])
def test_it_is_the_mean_loss_of_the_domains_plus_the_weighted_product_of_half_batches(iteration, weight, groups):
    output, batch = make_batch(groups)
    found = IRM(SETUP).loss(output, batch, make_context(iteration=iteration))
    assert float(found.detach()) == pytest.approx(naive_irm(output.logits, batch.targets, groups, weight), rel=1e-12)
    (gradient,) = torch.autograd.grad(found, output.logits)
    assert torch.isfinite(gradient).all()


def test_the_product_of_half_batches_is_an_unbiased_square():
    """Over all orders of a domain's samples its mean is the mean of g_i g_j over different samples i and j."""
    output, batch = make_batch([0] * 6)
    single = [naive_scale_gradient([row], output.logits, batch.targets) for row in range(6)]
    wanted = sum(single[i] * single[j] for i in range(6) for j in range(6) if i != j) / 30
    generator, logits = torch.Generator().manual_seed(0), output.logits.detach()
    found = []
    for _ in range(4000):
        order = torch.randperm(6, generator=generator)
        found.append(float(invariance_penalty([DomainPart(output.features, logits[order], batch.targets[order])])))
    values = torch.tensor(found, dtype=torch.float64)
    assert abs(float(values.mean()) - wanted) < 4 * float(values.std()) / math.sqrt(len(found))
    square = (sum(single) / 6) ** 2
    assert abs(square - wanted) > 8 * float(values.std()) / math.sqrt(len(found)), (
        "the biased square must be told apart"
    )


def test_half_precision_is_computed_in_single():
    output, batch = make_batch()
    halved = Output(output.features.half(), output.logits.detach().half())
    found = IRM(SETUP).loss(halved, batch, make_context(iteration=500))
    assert found.dtype == torch.float32
    wanted = naive_irm(halved.logits.double(), batch.targets, GROUPS, 100.0)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_a_domain_without_training_samples_does_not_matter():
    counts, domains = torch.tensor([20, 0, 20]), torch.tensor([0, 1, 2])
    setup = Setup(3, 4, torch.full((3,), 20), 10, 40, counts, 10, group_domains=domains)
    output, batch = make_batch([0, 2, 2, 0])
    found = IRM(setup).loss(output, batch, make_context())
    assert float(found.detach()) == pytest.approx(naive_irm(output.logits, batch.targets, [0, 1, 1, 0], 1.0), rel=1e-12)


def naive_variance(features, groups):
    """mean over domains of two samples or more, then over features, of sum (h - mean)^2 / (n - 1)."""
    by_domain = []
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
def test_it_is_irm_plus_the_variance_of_the_features_after_the_first_steps(iteration, weight, groups):
    output, batch = make_grouped(groups, seed=8)
    irm = IRM(SETUP).loss(output, batch, make_context(iteration=iteration))
    found = IBIRM(SETUP, ib=30.0).loss(output, batch, make_context(iteration=iteration))
    added = weight * naive_variance(output.features.detach(), groups)
    assert float(found.detach()) == pytest.approx(float(irm.detach()) + added, rel=1e-12)
    gradients = torch.autograd.grad(found, [output.features, output.logits], allow_unused=True)
    assert all(gradient is None or torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("iteration", [0, 500])
def test_without_bottleneck_it_is_irm_bit_for_bit(iteration):
    output, batch = make_grouped(GROUPS, seed=8)
    found = IBIRM(SETUP, ib=0.0).loss(output, batch, make_context(iteration=iteration))
    assert torch.equal(found, IRM(SETUP).loss(output, batch, make_context(iteration=iteration)))


def test_the_gradient_pulls_every_feature_to_the_mean_of_its_domain():
    """d(mean_e mean_a Var)/dh = 2 (h - mean of its domain) / (E A (n_e - 1))."""
    output, batch = make_grouped(GROUPS, seed=8)
    method = IBIRM(SETUP, penalty=0.0, ib=5.0, anneal_steps=0)
    (found,) = torch.autograd.grad(method.loss(output, batch, make_context()), output.features)
    features, domains = output.features.detach(), torch.tensor(GROUPS) % 2
    for row in range(len(GROUPS)):
        own = features[domains == domains[row]]
        wanted = 5.0 * 2 * (features[row] - own.mean(0)) / (2 * 4 * (len(own) - 1))
        torch.testing.assert_close(found[row], wanted, rtol=1e-10, atol=1e-13)


def test_a_share_of_training_delays_both_terms():
    method = IBIRM(SETUP, penalty=7.0, ib=3.0, anneal_steps=0.25)
    output, batch = make_grouped(GROUPS, seed=8)
    bottleneck = naive_variance(output.features.detach(), GROUPS)
    for progress, (weight, ib) in {0.24: (1.0, 0.0), 0.25: (7.0, 3.0)}.items():
        irm = IRM(SETUP, penalty=weight, anneal_steps=0).loss(output, batch, make_context())
        found = method.loss(output, batch, make_context(iteration=9999, progress=progress))
        assert float(found.detach()) == pytest.approx(float(irm.detach()) + ib * bottleneck, rel=1e-12)
