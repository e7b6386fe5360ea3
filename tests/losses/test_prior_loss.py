"""The class margin from an attribute's counts, or from priors given per sample."""

import copy
import math
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda import CrossEntropyLoss, ICDALoss, LogitAdjustmentLoss

C, A, N = 4, 5, 12
TABLE = [[50, 8, 3, 1], [2, 30, 0, 6], [1, 4, 20, 9]]  # one pair was never seen


def make_batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(N, A, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.arange(N) % C
    attributes = torch.randint(3, (N,), generator=generator)
    head = nn.Linear(A, C).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(C, A, generator=generator))
    return features, targets, head, attributes


def by_loops(log_prior, logits, targets):
    """The mean over i of log sum_c exp(z_c + log p_i(c)) - z_y - log p_i(y)."""
    total = 0.0
    for row, prior, y in zip(logits.tolist(), log_prior, targets.tolist(), strict=True):
        adjusted = [z + p for z, p in zip(row, prior, strict=True)]
        total += math.log(sum(math.exp(value) for value in adjusted)) - adjusted[y]
    return total / len(targets)


def rows_of_table(attributes):
    """log (n_ac + C pi_c / 2), with pi_c the share of class c in the table."""
    total = sum(map(sum, TABLE))
    shares = [sum(row[c] for row in TABLE) / total for c in range(C)]
    return [[math.log(TABLE[a][c] + 0.5 * C * shares[c]) for c in range(C)] for a in attributes.tolist()]


LOSSES: list[Any] = [
    pytest.param(lambda **options: LogitAdjustmentLoss(C, A, **options), id="la"),
    pytest.param(lambda **options: ICDALoss(C, A, lambda0=0.0, beta=0.0, **options), id="icda without its other terms"),
]


@pytest.mark.parametrize("make", LOSSES)
def test_an_attribute_gives_each_sample_the_prior_of_its_row(make):
    features, targets, head, attributes = make_batch()
    loss = make(prior=torch.tensor(TABLE))
    expected = by_loops(rows_of_table(attributes), head(features), targets)
    assert loss(features, targets, head, attributes=attributes).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("counts", [None, torch.tensor([9, 5, 5, 1])])
@pytest.mark.parametrize("make", LOSSES)
def test_given_log_probabilities_take_the_place_of_the_counts(make, counts):
    features, targets, head, _ = make_batch()
    log_prior = torch.randn(N, C, dtype=torch.float64)
    loss = make(class_counts=counts)
    expected = by_loops(log_prior.tolist(), head(features), targets)
    assert loss(features, targets, head, log_prior=log_prior).item() == pytest.approx(expected, abs=1e-12)
    moved = log_prior + torch.randn(N, 1)  # a constant per sample says nothing
    assert loss(features, targets, head, log_prior=moved).item() == pytest.approx(expected, abs=1e-12)


def trained(**options):
    loss = ICDALoss(C, A, **options).double()
    for seed in (1, 2):
        features, targets, head, attributes = make_batch(seed)
        loss(
            features, targets, head, **({"attributes": attributes % len(loss.prior)} if loss.prior is not None else {})
        )
    return loss


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_an_attribute_that_never_changes_is_the_prior_of_the_counts(covariance):
    features, targets, head, _ = make_batch()
    counts = torch.tensor(TABLE[0])
    same = torch.ones(N, dtype=torch.int32)
    table = torch.stack([7 * counts, counts])
    by_counts = trained(class_counts=counts, covariance=covariance)
    by_table = trained(prior=table, covariance=covariance)
    wanted = by_counts(features, targets, head, 0.6)
    torch.testing.assert_close(by_table(features, targets, head, 0.6, attributes=same), wanted)
    la = LogitAdjustmentLoss(C, A, prior=table, tau=0.7)(features, targets, head, attributes=same)
    torch.testing.assert_close(la, LogitAdjustmentLoss(C, A, counts, tau=0.7)(features, targets, head))


def test_log_probabilities_that_never_change_are_the_prior_of_the_counts():
    features, targets, head, _ = make_batch()
    counts = torch.tensor(TABLE[0])
    log_prior = (counts.double() / counts.sum()).log().expand(N, -1)
    for loss in (trained(class_counts=counts), LogitAdjustmentLoss(C, A, counts, tau=0.3)):
        found = copy.deepcopy(loss)(features, targets, head, 0.6, log_prior=log_prior)
        torch.testing.assert_close(found, loss(features, targets, head, 0.6), rtol=0, atol=1e-12)


def test_tau_multiplies_the_margin_of_an_attribute():
    features, targets, head, attributes = make_batch()
    phi = LogitAdjustmentLoss(C, A, prior=TABLE).adjustment(features, targets, head, attributes=attributes)
    scaled = LogitAdjustmentLoss(C, A, prior=TABLE, tau=0.4).adjustment(features, targets, head, attributes=attributes)
    torch.testing.assert_close(scaled, 0.4 * phi)
    plain = LogitAdjustmentLoss(C, A, prior=TABLE, tau=0.0)(features, targets, head, attributes=attributes)
    torch.testing.assert_close(plain, F.cross_entropy(head(features), targets))


@pytest.mark.parametrize("given", ["attributes", "log_prior"])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "low_rank"])
def test_the_margin_is_added_to_the_other_terms_and_moves_none_of_them(covariance, given):
    features, targets, head, attributes = make_batch()
    log_prior = torch.tensor(rows_of_table(attributes), dtype=torch.float64)
    table = TABLE if given == "attributes" else None
    argument = {given: attributes if given == "attributes" else log_prior}
    options: dict[str, Any] = {"covariance": covariance, "beta": 0.3, "rank": A}
    loss, without = trained(prior=table, **options), trained(class_margin=False, **options)
    found = loss.adjustment(features, targets, head, 0.7, **argument)
    own = log_prior.gather(1, targets[:, None])
    expected = without.adjustment(features, targets, head, 0.7) + log_prior - own
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("given", ["attributes", "log_prior"])
def test_the_fused_path_and_the_plain_path_are_equal(given):
    """Without logits diagonal covariances take the fused path."""
    features, targets, head, attributes = make_batch()
    argument = {given: attributes if given == "attributes" else torch.randn(N, C, dtype=torch.float64)}
    loss = trained(prior=TABLE if given == "attributes" else None, covariance="diagonal").eval()
    results = []
    for logits in (None, head(features)):
        value = loss(features, targets, head, 0.7, logits, **argument)
        results.append((value, *torch.autograd.grad(value, (features, head.weight, head.bias))))
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=0, atol=1e-12)


def test_class_margin_off_switches_every_prior_off():
    features, targets, head, attributes = make_batch()
    log_prior = torch.randn(N, C)
    off: dict[str, Any] = {"class_margin": False, "lambda0": 0.0, "beta": 0.0}
    plain = CrossEntropyLoss(C, A)(features, targets, head)
    assert torch.equal(ICDALoss(C, A, prior=TABLE, **off)(features, targets, head, attributes=attributes), plain)
    assert torch.equal(ICDALoss(C, A, **off)(features, targets, head, log_prior=log_prior), plain)


@pytest.mark.parametrize("make", LOSSES)
def test_a_class_without_any_sample_takes_no_part(make, monkeypatch):
    features, targets, head, attributes = make_batch()
    table = torch.tensor(TABLE)
    table[:, 3] = 0
    targets = targets % 3
    loss = make(prior=table)
    phi = loss.adjustment(features, targets, head, attributes=attributes)
    assert (phi[:, 3] == -math.inf).all()
    assert torch.isfinite(phi[:, :3]).all()
    logits = head(features)[:, :3]
    monkeypatch.setattr(sys.modules[__name__], "TABLE", [[*row[:3], 1e-300] for row in table.tolist()])
    expected = by_loops([row[:3] for row in rows_of_table(attributes)], logits, targets)
    assert loss(features, targets, head, attributes=attributes).item() == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="class 3"):
        loss(features, torch.full((N,), 3), head, attributes=attributes)


def test_priors_carry_no_gradient():
    features, targets, head, _ = make_batch()
    log_prior = torch.randn(N, C, requires_grad=True)
    LogitAdjustmentLoss(C, A)(features, targets, head, log_prior=log_prior).backward()
    assert log_prior.grad is None


def test_the_table_is_saved_kept_exact_and_restored():
    features, targets, head, attributes = make_batch()
    loss = trained(prior=[[70_001, 3, 9, 515], *TABLE[1:]])
    loss.half()
    assert loss.prior.dtype == torch.float64
    assert loss.prior[0, 0] == 70_001
    again = ICDALoss(C, A, prior=torch.ones(3, C)).double()
    again.load_state_dict(trained(prior=TABLE).state_dict())
    expected = trained(prior=TABLE).adjustment(features, targets, head, attributes=attributes)
    assert torch.equal(again.adjustment(features, targets, head, attributes=attributes), expected)
    assert "prior" not in ICDALoss(C, A).state_dict()


ATTRIBUTES = torch.arange(N) % 3


@pytest.mark.parametrize(
    ("table", "arguments", "error", "message"),
    [
        (None, {"attributes": ATTRIBUTES}, ValueError, "got attributes without a table of counts: make it with prior="),
        (TABLE, {}, ValueError, "a table over 3 attribute values, and needs attributes=.*got none"),
        (TABLE, {"log_prior": torch.zeros(N, C)}, ValueError, "needs attributes=.*got log_prior"),
        (
            TABLE,
            {"attributes": ATTRIBUTES, "log_prior": torch.zeros(N, C)},
            ValueError,
            "both attributes and log_prior",
        ),
        (TABLE, {"attributes": ATTRIBUTES[:-1]}, ValueError, r"attributes of shape \(12,\), got \(11,\)"),
        (TABLE, {"attributes": ATTRIBUTES + 1}, ValueError, "got attribute 3, outside 0..2"),
        (TABLE, {"attributes": ATTRIBUTES - 1}, ValueError, "got attribute -1, outside 0..2"),
        (TABLE, {"attributes": ATTRIBUTES.float()}, TypeError, "integer attributes, got torch.float32"),
        (TABLE, {"attributes": ATTRIBUTES > 0}, TypeError, "integer attributes, got torch.bool"),
        (None, {"log_prior": torch.zeros(N, C + 1)}, ValueError, r"log_prior of shape \(12, 4\), got \(12, 5\)"),
        (None, {"log_prior": torch.zeros(C)}, ValueError, r"log_prior of shape \(12, 4\), got \(4,\)"),
        (None, {"log_prior": torch.zeros(N, C).long()}, TypeError, "floating-point log_prior, got torch.int64"),
        (None, {"log_prior": torch.full((N, C), -math.inf)}, ValueError, "log_prior that is NaN or infinite"),
        (None, {"log_prior": torch.full((N, C), math.nan)}, ValueError, "log_prior that is NaN or infinite"),
    ],
)
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_wrong_calls_are_named_before_statistics_change(covariance, table, arguments, error, message):
    features, targets, head, _ = make_batch()
    loss = trained(prior=table, covariance=covariance)
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(error, match=f"ICDALoss.*{message}"):
        loss(features, targets, head, **arguments)
    for name, value in loss.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2, 3, 4], r"prior of shape \(K, 4\).*got \(4,\)"),
        ([[1, 2, 3]], r"got \(1, 3\)"),
        ([[1, 2, 3, -1]], "finite, not negative and not all zero"),
        ([[1, 2, 3, math.nan]], "finite, not negative and not all zero"),
        ([[0, 0, 0, 0]], "finite, not negative and not all zero"),
    ],
)
@pytest.mark.parametrize("kind", [ICDALoss, LogitAdjustmentLoss])
def test_wrong_tables_are_named(kind, table, message):
    with pytest.raises(ValueError, match=f"{kind.__name__} expects prior.*{message}|{message}"):
        kind(C, A, prior=torch.tensor(table))
