import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from icda import CrossEntropyLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, Strength
from icda.meta.moments import normalised, with_values
from support import drawn_batch

# Few classes (a table over pairs of classes), classes > 2 samples (a matrix a sample), two classes.
SHAPES = [(7, 4, 5), (3, 8, 4), (6, 2, 3)]
SWITCHES = ["semantic", "counterfactual", "class_margin", "sample_margin"]
LAM, BETA, PROGRESS = 0.8, 0.3, 0.7


def class_moments(seen, num_classes, kind):
    features, targets = torch.cat([f.detach() for f, _ in seen]), torch.cat([t for _, t in seen])
    dim = features.shape[1]
    mean = torch.zeros(num_classes, dim, dtype=torch.float64)
    sigma = torch.zeros(num_classes, dim, dim, dtype=torch.float64)
    for c in targets.unique().tolist():
        mean[c] = features[targets == c].mean(0)
        sigma[c] = features[targets == c].T.cov(correction=0).view(dim, dim)
    if kind == "diagonal":
        sigma = torch.diag_embed(sigma.diagonal(dim1=1, dim2=2))
    return mean, sigma


def naive_strength(features, targets, weight):
    """alpha_{i,c} and alpha_i as plain numbers: detached by construction."""
    per_class, per_sample = [], []
    for h, y in zip(features.tolist(), targets.tolist(), strict=True):
        cosines = []
        for w in weight.tolist():
            dot = sum(a * b for a, b in zip(h, w, strict=True))
            cosines.append(dot / (math.hypot(*h) * math.hypot(*w) + 1e-12))
        per_class.append([max(cosine, 0.0) if c != y else 0.0 for c, cosine in enumerate(cosines)])
        per_sample.append((1 - cosines[y]) / 2)
    return per_class, per_sample


def oracle_adjustment(
    targets,
    weight,
    strength,
    mean,
    sigma,
    counts,
    lam,
    beta,
    semantic=True,
    counterfactual=True,
    class_margin=True,
    sample_margin=True,
):
    """phi of mathematics 0, in three loops over i, c and j."""
    num_classes, (per_class, per_sample) = len(weight), strength
    rows = []
    for i, y in enumerate(targets.tolist()):
        row = []
        for c in range(num_classes):
            if c == y:
                row.append(weight.new_zeros(()))
                continue
            d = weight[c] - weight[y]
            spread = weight.new_zeros(())
            for j in range(num_classes):
                coefficient = float(semantic) if j == y else counterfactual * per_class[i][j] / (num_classes - 1)
                spread = spread + coefficient * (d @ sigma[j] @ d)
            shift = counterfactual * per_class[i][c] / (num_classes - 1) * (d @ mean[c])
            margin = class_margin * math.log(counts[c] / counts[y]) + sample_margin * beta * per_sample[i]
            row.append(lam / 2 * spread + lam * shift + margin)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def oracle_loss(logits, phi, targets):
    """The batch mean of log(1 + sum_{c != y} exp(z_c + phi_c - z_y))."""
    total = logits.new_zeros(())
    for i, y in enumerate(targets.tolist()):
        others = [(logits[i, c] + phi[i, c] - logits[i, y]).exp() for c in range(logits.shape[1]) if c != y]
        total = total + (1 + sum(others)).log()
    return total / len(targets)


def trained(shape, kind, **options):
    """A loss that has seen two batches, its class counts, and a third batch with the moments after all three."""
    _, num_classes, dim = shape
    counts = [5 + 7 * c for c in range(num_classes)]
    options = {"lambda0": LAM, "beta": BETA, "covariance": kind, "rank": dim, **options}
    loss = ICDALoss(num_classes, dim, torch.tensor(counts), **options).double()
    batches = [drawn_batch(seed, *shape) for seed in range(3)]
    for features, targets, head in batches[:2]:
        loss(features, targets, head)
    return loss, counts, (*batches[2], *class_moments([(f, t) for f, t, _ in batches], num_classes, kind))


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("switches", list(itertools.product([True, False], repeat=4)))
def test_adjustment_loss_and_gradients_equal_three_loops(kind, shape, switches):
    parts = dict(zip(SWITCHES, switches, strict=True))
    loss, counts, (features, targets, head, mean, sigma) = trained(shape, kind, **parts)
    strength = naive_strength(features, targets, head.weight)
    phi = oracle_adjustment(targets, head.weight, strength, mean, sigma, counts, LAM * PROGRESS, BETA, **parts)
    expected = oracle_loss(head(features), phi, targets)
    value = loss(features, targets, head, PROGRESS)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(loss.adjustment(features, targets, head, PROGRESS), phi, rtol=0, atol=1e-10)
    leaves = [features, head.weight, head.bias]
    for found, wanted in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_the_closed_form_of_section_0(kind, shape):
    loss, _, (features, targets, head, mean, sigma) = trained(shape, kind)
    size, num_classes, _ = shape
    value = loss(features, targets, head, PROGRESS)
    to_features, to_weight = torch.autograd.grad(value, [features, head.weight])
    lam, weight = LAM * PROGRESS, head.weight.detach()
    q = (head(features) + loss.adjustment(features, targets, head, PROGRESS)).softmax(1).detach()
    per_class, _ = naive_strength(features, targets, weight)
    expected = torch.zeros_like(weight)
    for i, y in enumerate(targets.tolist()):
        hat = [alpha / (num_classes - 1) for alpha in per_class[i]]
        mixed = sum((1.0 if j == y else hat[j]) * sigma[j] for j in range(num_classes))
        for c in range(num_classes):
            if c != y:
                r = features[i].detach() + lam * mixed @ (weight[c] - weight[y]) + lam * hat[c] * mean[c]
                expected[c] += q[i, c] * r / size
                expected[y] -= q[i, c] * r / size
        one_hot = F.one_hot(targets[i], num_classes)
        torch.testing.assert_close(to_features[i], weight.T @ (q[i] - one_hot) / size, rtol=0, atol=1e-10)
    torch.testing.assert_close(to_weight, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", [(5, 3, 3), (2, 5, 2)])
def test_gradcheck_passes_with_given_strengths(kind, shape):
    loss, _, (features, targets, head, _, _) = trained(shape, kind)
    strength = loss.strength(features.detach(), targets, head.weight)

    def value(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(features @ weight.T + bias + loss.combine(targets, weight, 0.7, strength), targets)

    assert torch.autograd.gradcheck(value, [features, head.weight, head.bias])


def test_low_rank_keeps_exact_variances_when_the_rank_does_not_suffice():
    loss, _, (features, targets, head, _, sigma) = trained((12, 3, 6), "low_rank", rank=2)
    loss(features, targets, head)
    found = loss.statistics.covariance
    torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), sigma.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-11)
    # With w_y = 0 and w_c an axis vector, P reads one variance only and is therefore exact.
    weight = torch.zeros(3, 6, dtype=torch.float64)
    weight[1, 2] = weight[2, 4] = 2.0
    own = torch.zeros(12, dtype=torch.int64)
    loss.class_margin = loss.sample_margin = False
    phi = loss.adjustment(torch.zeros_like(features), own, (weight, None))
    for c, axis in ((1, 2), (2, 4)):
        expected = LAM / 2 * 4 * sigma[0, axis, axis]
        torch.testing.assert_close(phi[:, c], expected.expand(12), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("by", ["lambda0", "progress"])
def test_lambda_and_beta_zero_are_logit_adjustment(kind, shape, by):
    lambda0, progress = (0.0, 0.5) if by == "lambda0" else (LAM, 0.0)
    loss, counts, (features, targets, head, _, _) = trained(shape, kind, lambda0=lambda0, beta=0.0)
    value = loss(features, targets, head, progress)
    expected = LogitAdjustmentLoss(shape[1], shape[2], torch.tensor(counts))(features, targets, head)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("counts", [None, 3])
def test_without_counterfactuals_margins_and_prior_it_is_isda(kind, shape, counts):
    _, num_classes, dim = shape
    uniform = None if counts is None else torch.full((num_classes,), counts)
    options = {"lambda0": LAM, "covariance": kind, "rank": dim}
    icda = ICDALoss(num_classes, dim, uniform, counterfactual=False, sample_margin=False, **options).double()
    isda = ISDALoss(num_classes, dim, **options).double()
    for seed in range(3):
        features, targets, head = drawn_batch(seed, *shape)
        found, expected = icda(features, targets, head, 0.6), isda(features, targets, head, 0.6)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        mine, wanted = (torch.autograd.grad(value, head.weight)[0] for value in (found, expected))
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_with_everything_off_and_a_uniform_prior_it_is_cross_entropy(kind):
    off = {"semantic": False, "counterfactual": False, "sample_margin": False}
    features, targets, head = drawn_batch(0, 7, 4, 5)
    expected = CrossEntropyLoss(4, 5)(features, targets, head)
    for counts in (None, torch.full((4,), 9)):
        value = ICDALoss(4, 5, counts, covariance=kind, **off).double()(features, targets, head)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-13)
    switched_off = ICDALoss(4, 5, torch.tensor([9, 1, 1, 1]), covariance=kind, class_margin=False, **off).double()
    assert torch.equal(switched_off(features, targets, head), expected)


def test_the_defaults_are_those_of_the_paper():
    loss = ICDALoss(4, 5)
    assert (loss.lambda0, loss.beta, loss.reduction, loss.statistics.kind) == (0.5, 0.1, "mean", "full")
    assert all(getattr(loss, switch) for switch in SWITCHES)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(st.integers(1, 7), st.integers(2, 7), st.integers(1, 5)),
    kind=st.sampled_from(["full", "diagonal", "low_rank"]),
    progress=st.floats(0, 1),
)
def test_phi_is_zero_at_the_target_and_its_semantic_part_never_negative(seed, shape, kind, progress):
    features, targets, head = drawn_batch(seed, *shape)
    loss = ICDALoss(shape[1], shape[2], torch.arange(shape[1]) + 1, covariance=kind).double()
    loss(features, targets, head)
    phi = loss.adjustment(features, targets, head, progress)
    assert (phi.gather(1, targets[:, None]) == 0).all()
    loss.counterfactual = loss.class_margin = loss.sample_margin = False
    assert (loss.adjustment(features, targets, head, progress) >= 0).all()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), beta=st.floats(0, 2), shape=st.sampled_from(SHAPES))
def test_the_sample_margin_equals_lowering_the_target_logit(seed, beta, shape):
    features, targets, head = drawn_batch(seed, *shape)
    off = {"semantic": False, "counterfactual": False, "class_margin": False}
    value = ICDALoss(shape[1], shape[2], beta=beta, **off).double()(features, targets, head)
    _, per_sample = naive_strength(features, targets, head.weight)
    margins = torch.tensor(per_sample, dtype=torch.float64)[:, None]
    lowered = head(features).scatter_add(1, targets[:, None], -beta * margins)
    torch.testing.assert_close(value, F.cross_entropy(lowered, targets), rtol=0, atol=1e-12)


def test_the_mean_of_the_strengths_may_stand_for_the_sample():
    features, targets, head = drawn_batch(0, 7, 4, 5)
    off = {"semantic": False, "counterfactual": False, "class_margin": False}
    loss = ICDALoss(4, 5, beta=0.4, sample_strength="mean", **off).double()
    per_class, _ = naive_strength(features, targets, head.weight)
    phi = loss.adjustment(features, targets, head)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = 0.0 if c == y else 0.4 * sum(per_class[i]) / 3
            assert phi[i, c].item() == pytest.approx(expected, abs=1e-12)


def test_the_strength_of_the_loss_is_direct_and_detached():
    features, targets, head = drawn_batch(0, 7, 4, 5)
    strength = ICDALoss(4, 5).strength(features, targets, head.weight)
    assert isinstance(strength, Strength)
    per_class, per_sample = naive_strength(features, targets, head.weight)
    torch.testing.assert_close(strength.per_class, torch.tensor(per_class, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(strength.per_sample, torch.tensor(per_sample, dtype=torch.float64), rtol=0, atol=1e-12)
    assert not strength.per_class.requires_grad


def test_combine_with_all_off_is_none():
    features, targets, head = drawn_batch(0, 7, 4, 5)
    loss = ICDALoss(4, 5, **dict.fromkeys(SWITCHES, False)).double()
    assert loss.combine(targets, head.weight, 1.0, loss.strength(features, targets, head.weight)) is None


def test_learnt_strengths_get_a_gradient_through_combine():
    """What Meta-ICDA needs: alpha_i from a network, its graph kept."""
    loss, _, (features, targets, head, _, _) = trained((7, 4, 5), "full")
    direct = loss.strength(features, targets, head.weight)
    learnt = direct.per_sample.clone().requires_grad_()
    phi = loss.combine(targets, head.weight, 0.5, direct._replace(per_sample=learnt))
    gradient = torch.autograd.grad(phi.sum(), learnt)[0]
    torch.testing.assert_close(gradient, torch.full_like(learnt, 3 * BETA), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_moments_given_to_combine_stand_in_for_the_running_ones(kind):
    loss, _, (features, targets, head, _, _) = trained((7, 4, 5), kind)
    strength, moments = loss.strength(features, targets, head.weight), loss.statistics.moments()
    expected = loss.combine(targets, head.weight, 0.5, strength)
    leaves = [part.clone().requires_grad_() for part in normalised(moments)]
    loss.statistics.reset()
    found = loss.combine(targets, head.weight, 0.5, strength, with_values(moments, leaves))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert all(gradient.any() for gradient in torch.autograd.grad(found.sum(), leaves))


def test_a_class_absent_from_training_contributes_nothing():
    """With count 0 the loss is that of a problem without the class, but for the divisor C - 1 of the strengths."""
    features, _, head = drawn_batch(0, 8, 4, 5)
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    options = {"counterfactual": False, "beta": BETA, "lambda0": LAM}
    whole = ICDALoss(4, 5, torch.tensor([30, 20, 10, 0]), **options).double()
    without = ICDALoss(3, 5, torch.tensor([30, 20, 10]), **options).double()
    expected = without(features, targets, (head.weight[:3], head.bias[:3]), 0.5)
    torch.testing.assert_close(whole(features, targets, head, 0.5), expected, rtol=0, atol=1e-12)


def test_a_class_not_seen_yet_has_no_covariance_and_no_mean_to_move_to():
    features, _, head = drawn_batch(0, 8, 4, 5)
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    loss = ICDALoss(4, 5, lambda0=LAM, beta=0.0).double()
    loss(features, targets, head)
    mean, sigma = class_moments([(features, targets)], 4, "full")
    strength = naive_strength(features, targets, head.weight)
    expected = oracle_adjustment(targets, head.weight, strength, mean, sigma, [1] * 4, LAM, 0.0)
    torch.testing.assert_close(loss.adjustment(features, targets, head), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("covariance", ["diagonal", "full", "low_rank"])
@pytest.mark.parametrize("give_logits", [True, False])
def test_a_backward_pass_inside_of_autocast_has_the_gradients_of_one_outside(covariance, give_logits):
    found = []
    for inside in (True, False):
        torch.manual_seed(0)
        loss, head = ICDALoss(3, 5, [4, 4, 4], covariance=covariance), torch.nn.Linear(5, 3)
        features = torch.randn(12, 5, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(features, torch.arange(12) % 3, head, 0.5, head(features) if give_logits else None)
            if inside:
                value.backward()
        if not inside:
            value.backward()
        assert head.weight.grad is not None
        found.append(head.weight.grad)
    torch.testing.assert_close(found[0], found[1], rtol=0.02, atol=1e-3)  # torch itself rounds some products there
