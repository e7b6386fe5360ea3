import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.losses import CrossEntropyLoss
from icda.losses.center_loss import CenterLoss


def make_batch(seed=0, classes=4):
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(3, classes).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(classes, 3, generator=generator))
    features = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    return features.requires_grad_(), torch.randint(classes - 1, (9,), generator=generator), head


def oracle_update(centres, features, targets, rate):
    moved = centres.clone()
    for c in range(len(centres)):
        mine = [h for h, y in zip(features, targets.tolist(), strict=True) if y == c]
        delta = sum((centres[c] - h for h in mine), torch.zeros_like(centres[c])) / (1 + len(mine))
        moved[c] = centres[c] - rate * delta
    return moved


@pytest.mark.parametrize("classes", [2, 4])
def test_value_gradients_and_centres_equal_naive_loops(classes):
    loss = CenterLoss(classes, 3, weight=0.7, centre_rate=0.4)
    centres = torch.zeros(classes, 3, dtype=torch.float64)
    for seed in range(3):
        features, targets, head = make_batch(seed, classes)
        value = loss(features, targets, head)
        distance = sum(((h - centres[y]) ** 2).sum() for h, y in zip(features, targets.tolist(), strict=True))
        expected = F.cross_entropy(head(features), targets) + 0.7 / 2 * distance / len(targets)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
        leaves = [features, head.weight, head.bias]
        for mine, other in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)
        centres = oracle_update(centres, features.detach(), targets, 0.4)
        torch.testing.assert_close(loss.centres, centres, rtol=0, atol=1e-12)


def test_weight_zero_is_cross_entropy_and_still_follows_the_features():
    features, targets, head = make_batch()
    loss = CenterLoss(4, 3, weight=0.0)
    assert torch.equal(loss(features, targets, head), CrossEntropyLoss(4, 3)(features, targets, head))
    assert loss.centres.any()


def test_a_class_without_samples_keeps_its_centre_and_repeated_steps_reach_the_mean():
    features, targets, head = make_batch()
    loss = CenterLoss(4, 3)
    for _ in range(200):
        loss(features, targets, head)
    assert not loss.centres[3].any(), "make_batch gives no sample to the last class"
    for c in targets.unique().tolist():
        torch.testing.assert_close(loss.centres[c], features[targets == c].mean(0).detach())


def test_no_gradient_goes_into_the_centres_and_evaluation_leaves_them():
    features, targets, head = make_batch()
    loss = CenterLoss(4, 3)
    value = loss(features, targets, head)
    before = loss.centres
    assert not before.requires_grad
    value.backward()  # the graph holds the centres of before the update
    loss.eval()(features, targets, head)
    loss.train().adjustment(features, targets, head)
    assert torch.equal(loss.centres, before)


def test_features_beyond_the_square_root_of_half_precision_do_not_overflow():
    head, features = nn.Linear(3, 4).half(), torch.full((2, 3), 300.0, dtype=torch.float16)
    value = CenterLoss(4, 3, weight=1.0).eval()(features, torch.tensor([0, 1]), head, logits=torch.zeros(2, 4).half())
    assert float(value) == pytest.approx(0.5 * 3 * 300**2, rel=1e-3)


def centres_on_rank(rank):
    loss = CenterLoss(4, 3)
    for seed in range(3):
        features, targets, head = make_batch(seed)
        loss(features[rank::2], targets[rank::2], head)
    return loss.centres


def test_two_ranks_have_the_centres_of_one_process(run_on_ranks):
    one = CenterLoss(4, 3)
    for seed in range(3):
        one(*make_batch(seed))
    for centres in run_on_ranks(centres_on_rank):
        torch.testing.assert_close(centres, one.centres, rtol=0, atol=1e-12)
