import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda import ISDALoss
from icda.losses import LOSSES
from icda.losses.sgida import SGIDALoss, batch_hard_triplet


def make_batch(seed=0, size=9, num_classes=4, dim=5):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64) + 1
    return features.requires_grad_(), torch.arange(size) % num_classes, nn.Linear(dim, num_classes).double()


def oracle_relations(mean, count):
    rows = []
    for y in range(len(mean)):
        raw = [0.0] * len(mean)
        for j in range(len(mean)):
            if j != y and count[j] > 0:
                norms = mean[y].norm() * mean[j].norm()
                raw[j] = math.exp(float(mean[y] @ mean[j] / norms) if norms > 0 else 0.0)
        rows.append([value / sum(raw) for value in raw])
    return rows


def oracle_triplet(logits, targets, margin):
    values = []
    for i, y in enumerate(targets.tolist()):
        own = [
            math.dist(logits[i].tolist(), logits[j].tolist()) for j in range(len(logits)) if targets[j] == y and j != i
        ]
        other = [math.dist(logits[i].tolist(), logits[j].tolist()) for j in range(len(logits)) if targets[j] != y]
        values.append(max(0.0, margin + max(own) - min(other)) if own and other else 0.0)
    return values


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize(("num_classes", "present"), [(4, 4), (2, 2), (100, 3)])
def test_loss_and_gradients_equal_naive_loops(kind, num_classes, present):
    options = {"lambda0": 0.8, "smoothing": 0.3, "triplet_weight": 0.2, "triplet_margin": 0.7}
    loss = SGIDALoss(num_classes, 5, covariance=kind, rank=5, reduction="none", **options).double()
    batches = [make_batch(seed, num_classes=num_classes) for seed in range(3)]
    batches = [(features, targets % present, head) for features, targets, head in batches]
    for features, targets, head in batches:
        value = loss(features, targets, head, progress=0.7)
    statistics = loss.statistics
    covariance = statistics.covariance
    if kind == "diagonal":
        covariance = torch.diag_embed(covariance)
    relations = oracle_relations(statistics.mean, statistics.count)
    rows = []
    for i, y in enumerate(targets.tolist()):
        sigma = 0.7 * covariance[y] + 0.3 * sum(relations[y][j] * covariance[j] for j in range(num_classes))
        differences = [head.weight[c] - head.weight[y] for c in range(num_classes)]
        rows.append(torch.stack([0.5 * 0.8 * 0.7 * (d @ sigma @ d) for d in differences]))
        assert math.isclose(sum(relations[y]), 1), i
    logits = head(features)
    expected = F.cross_entropy(logits + torch.stack(rows), targets, reduction="none")
    triplets = torch.tensor(oracle_triplet(logits, targets, 0.7), dtype=torch.float64)
    torch.testing.assert_close(value, expected + 0.2 * triplets, rtol=0, atol=1e-9)
    leaves = [features, head.weight, head.bias]
    plain = SGIDALoss(num_classes, 5, covariance=kind, rank=5, **(options | {"triplet_weight": 0.0})).double().eval()
    plain.load_state_dict(loss.state_dict())
    found = torch.autograd.grad(plain(features, targets, head, progress=0.7), leaves, retain_graph=True)
    for mine, theirs in zip(found, torch.autograd.grad(expected.mean(), leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


def test_without_smoothing_and_triplets_it_is_isda():
    loss, isda = SGIDALoss(4, 5, smoothing=0.0, triplet_weight=0.0).double(), ISDALoss(4, 5).double()
    for seed in range(3):
        features, targets, head = make_batch(seed)
        assert torch.equal(loss(features, targets, head, 0.6), isda(features, targets, head, 0.6))


def test_triplet_gradients_are_right_also_for_equal_samples():
    logits, targets = torch.randn(7, 3, dtype=torch.float64).requires_grad_(), torch.arange(7) % 2
    assert torch.autograd.gradcheck(lambda z: batch_hard_triplet(z, targets, 3.0), (logits,))
    equal = torch.zeros(4, 3).requires_grad_()
    batch_hard_triplet(equal, torch.tensor([0, 0, 1, 1]), 1.0).sum().backward()
    assert torch.isfinite(equal.grad).all()


@pytest.mark.parametrize("targets", [[0, 0, 0], [0, 1, 2]], ids=["one class", "all alone"])
def test_a_batch_without_triplets_has_none(targets):
    logits = torch.randn(3, 3).requires_grad_()
    values = batch_hard_triplet(logits, torch.tensor(targets), 1.0)
    assert values.tolist() == [0, 0, 0]
    values.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_the_first_class_seen_is_related_to_itself():
    loss = SGIDALoss(3, 5)
    features, _, head = make_batch(num_classes=3)
    value = loss(features.float(), torch.zeros(9).long(), head.float())
    assert torch.isfinite(value)
    assert loss.relations()[0].tolist() == [1, 0, 0]
    assert loss.relations()[1].tolist() == [1, 0, 0]  # the only other class there is


def test_it_says_that_it_is_an_approximation_where_it_is_listed():
    first = (LOSSES.get("sgida").__doc__ or "").split("\n")[0]
    assert first.startswith("APPROXIMATION")
