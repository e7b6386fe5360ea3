"""Table 1 against naive loops, and the Taylor identities that it rests on, in float64."""

import math

import pytest
import torch
from torch.nn import functional as F

from icda.explain.regularisers import FACTORS, first_order_term, regulariser
from icda.losses import LOSSES, CrossEntropyLoss

C, A, N = 4, 5, 12
COUNTS = torch.tensor([8.0, 4.0, 2.0, 1.0])


@pytest.fixture
def batch():
    features, targets = torch.randn(N, A, dtype=torch.float64), torch.arange(N) % C
    return features, targets, (torch.randn(C, A, dtype=torch.float64), torch.randn(C, dtype=torch.float64))


def build(name, counts=COUNTS, **options):
    loss = LOSSES.get(name)(C, A, counts, reduction="none", **options).double()
    if hasattr(loss, "statistics"):
        loss.statistics.update(torch.randn(40, A, dtype=torch.float64), torch.arange(40) % C)
    if name == "risda":
        loss.set_confusion(torch.rand(C, C, dtype=torch.float64))
    return loss.eval()


VARIANTS = [("logit_adjustment", {"tau": 2.0}), ("risda", {"head_classes": 1}), ("icda", {"variance_bound": 0.1})]


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in FACTORS), *VARIANTS])
def test_the_parts_add_up_to_the_first_order_term_of_the_loss_itself(name, options, batch):
    features, targets, head = batch
    loss = build(name, **options)
    logits = F.linear(features, *head)
    wanted = first_order_term(logits, targets, loss.adjustment(features, targets, head, 0.6))
    torch.testing.assert_close(regulariser(loss, features, targets, head, 0.6).total, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", list(FACTORS))
def test_a_loss_has_the_factors_of_its_row_and_no_other(name, batch):
    terms = regulariser(build(name), *batch, progress=0.6)
    present = {part for part, value in terms._asdict().items() if value.abs().max() > 0}
    assert present == set(FACTORS[name])


def test_the_row_of_icda_is_what_the_table_prints(batch):
    features, targets, (weight, bias) = batch
    loss = build("icda")
    lam, covariance, mean = loss.lambda0 * 0.6, loss.statistics.covariance, loss.statistics.mean
    terms = regulariser(loss, features, targets, (weight, bias), 0.6, as_printed=True)
    for i, y in enumerate(targets.tolist()):
        h = features[i]
        q = torch.softmax(weight @ h + bias, 0)
        cosine = [float(h @ w / (h.norm() * w.norm())) for w in weight]
        hat = [max(value, 0.0) / (C - 1) for value in cosine]
        total = -loss.beta * (1 - cosine[y]) / 2 * q[y]
        for c in range(C):
            if c == y:
                continue
            d = weight[c] - weight[y]
            sigma = covariance[y] + sum(hat[j] * covariance[j] for j in range(C) if j != y)
            inner = math.log(COUNTS[c] / COUNTS[y]) + 0.5 * lam * d @ sigma @ d + lam * hat[c] * d @ mean[c]
            total = total + q[c] * inner
        assert terms.total[i].item() == pytest.approx(total.item(), rel=1e-9)


def test_what_the_table_leaves_out_is_a_constant_of_the_sample(batch):
    loss = build("icda")
    whole, printed = (regulariser(loss, *batch, as_printed=flag) for flag in (False, True))
    strength = loss.strength(batch[0], batch[1], batch[2][0]).per_sample
    torch.testing.assert_close(whole.sample_margin - printed.sample_margin, loss.beta * strength)


def second_order_term(logits, adjustment):
    """1/2 du^T (diag(q) - q q^T) du (N,), half the variance of the adjustment under q."""
    q = F.softmax(logits, 1)
    return 0.5 * (q * (adjustment - (q * adjustment).sum(1, keepdim=True)).square()).sum(1)


def _remainders(batch, name, scale, options):
    """What first and second order leave of the loss, with every option `scale` times as large."""
    features, targets, head = batch
    torch.manual_seed(5)  # the same statistics whatever the scale
    loss = build(name, None, **{key: value * scale for key, value in options.items()})
    logits = F.linear(features, *head)
    exact = loss(features, targets, head, 1.0)
    first = F.cross_entropy(logits, targets, reduction="none") + regulariser(loss, features, targets, head).total
    second = first + second_order_term(logits, loss.adjustment(features, targets, head))
    return (exact - first).abs().max().item(), (exact - second).abs().max().item()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("isda", {"lambda0": 0.1}),
        ("risda", {"lambda0": 0.1, "mean_strength": 0.1}),
        ("icda", {"lambda0": 0.1, "beta": 0.1}),
    ],
)
def test_the_loss_is_cross_entropy_plus_the_terms_up_to_the_right_order(name, options, batch):
    # Halving lambda and beta divides what first order leaves by 4, and what second order leaves by 8.
    (first, second), (first_half, second_half) = (_remainders(batch, name, scale, options) for scale in (0.02, 0.01))
    assert first / first_half == pytest.approx(4, rel=0.1)
    assert second / second_half == pytest.approx(8, rel=0.1)
    assert second < first


def test_with_priors_the_expansion_holds_around_the_logits_of_logit_adjustment(batch):
    features, targets, head = batch
    logits = F.linear(features, *head)
    prior = torch.log(COUNTS[None, :] / COUNTS[targets][:, None]).double()
    left = []
    for scale in (0.02, 0.01):
        torch.manual_seed(5)
        loss = build("icda", lambda0=0.1 * scale, beta=0.1 * scale)
        adjustment = loss.adjustment(features, targets, head)
        start = F.cross_entropy(logits + prior, targets, reduction="none")
        expanded = start + first_order_term(logits + prior, targets, adjustment - prior)
        left.append((loss(features, targets, head, 1.0) - expanded).abs().max().item())
    assert left[0] / left[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(
    ("switch", "part"),
    [("class_margin", "class_margin"), ("sample_margin", "sample_margin"), ("counterfactual", "boundary_distance")],
)
def test_a_part_that_is_switched_off_is_zero(switch, part, batch):
    terms = regulariser(build("icda", **{switch: False}), *batch)
    assert getattr(terms, part).abs().max() == 0


def test_a_loss_outside_the_table_is_refused():
    with pytest.raises(TypeError, match="table 1 knows logit_adjustment, isda, risda, icda, got CrossEntropyLoss"):
        regulariser(CrossEntropyLoss(2, 2), torch.zeros(1, 2), torch.tensor([0]), torch.nn.Linear(2, 2))
