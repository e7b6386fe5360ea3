import numpy as np
import pytest
import torch

from icda.heads.online import OnlineHead
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import fit_head

NAMES = ("ce", "la", "isda", "risda", "icda")


def samples(size=4000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), size, replacement=True, generator=generator)
    centres = 1.5 * torch.randn(3, 6, generator=torch.Generator().manual_seed(9))
    return torch.randn(size, 6, generator=generator) + centres[targets], targets


def learned(name, batches, C=0.1, dtype=torch.float32):
    head = OnlineHead(3, 6, LossSettings(name), C, dtype=dtype)
    for batch in batches:
        head.update(*batch)
    return head


def probabilities(head, features):
    return torch.softmax(features @ head.weight.T + head.bias, 1)


@pytest.mark.parametrize("name", NAMES)
def test_many_batches_come_near_the_head_fitted_to_all_of_them(name):
    features, targets = samples(40_000)
    head = learned(name, list(zip(features.split(1000), targets.split(1000), strict=True)))
    problem = Problem.plain(features, targets, 3, 1 / (0.1 * len(targets)))
    exact = fit_head(problem, LossSettings(name), 300, 1e-6)
    fresh, _ = samples(2000, seed=1)
    gap = (probabilities(head, fresh) - probabilities(exact, fresh)).abs().mean()
    assert gap < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_batches_hardly_matters(name):
    features, targets = samples(8000)
    batches = list(zip(features.split(500), targets.split(500), strict=True))
    forward, backward = learned(name, batches), learned(name, batches[::-1])
    fresh, _ = samples(2000, seed=1)
    assert (probabilities(forward, fresh) - probabilities(backward, fresh)).abs().mean() < 0.02
    torch.testing.assert_close(forward.statistics.mean, backward.statistics.mean, rtol=1e-4, atol=1e-5)


def test_scale_and_offset_of_features_change_nothing():
    features, targets = samples()
    moved = features.double() * torch.tensor([1e3, 1e-3, 1, 1, 1, 1]) + torch.tensor([0, 5, 0, 100.0, 0, 0])
    batches = [list(zip(x.double().split(500), targets.split(500), strict=True)) for x in (features, moved)]
    # Without weight decay, which does see the scale.
    plain, other = (learned("ce", part, C=1e12, dtype=torch.float64) for part in batches)
    torch.testing.assert_close(probabilities(plain, features.double()), probabilities(other, moved), rtol=0, atol=1e-6)


def test_statistics_and_counts_are_exact():
    features, targets = samples(1000)
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(3))
    head = learned("icda", list(zip(*(part.split(90) for part in (features, targets, weights)), strict=True)))
    for label in range(3):
        own, mass = features[targets == label].double().numpy(), weights[targets == label].double().numpy()
        mean = np.average(own, axis=0, weights=mass)
        np.testing.assert_allclose(head.statistics.mean[label], mean, atol=1e-5)
        covariance = np.cov(own.T, aweights=mass, ddof=0)
        np.testing.assert_allclose(head.statistics.covariance[label], covariance, atol=1e-4)
    wanted = torch.bincount(targets, weights.double())
    torch.testing.assert_close(head.loss.class_counts, wanted, rtol=1e-6, atol=1e-6)


def test_samples_of_weight_zero_are_as_if_they_were_not_there():
    features, targets = samples(600)
    weights = (torch.arange(600) % 3 > 0).float()
    used = weights > 0
    with_zeros = learned("isda", [(features, targets, weights)])
    without = learned("isda", [(features[used], targets[used])])
    assert torch.equal(with_zeros.average, without.average)
    nothing = OnlineHead(3, 6, LossSettings("ce"), 1.0)
    nothing.update(features, targets, torch.zeros(600))
    assert nothing.steps == 0


def test_a_constant_feature_gets_no_weight():
    features, targets = samples(2000)
    features[:, 2] = 123.456
    head = learned("ce", list(zip(features.split(100), targets.split(100), strict=True)))
    assert not head.weight[:, 2].any()


def test_balanced_classes_are_predicted_as_often_as_they_should():
    features, targets = samples(8000)
    head = OnlineHead(3, 6, LossSettings("la"), 1.0, balance_classes=True)
    plain = OnlineHead(3, 6, LossSettings("ce"), 1.0)
    for batch in zip(features.split(500), targets.split(500), strict=True):
        head.update(*batch)
        plain.update(*batch)
    rare = features[targets == 2]
    recall = [float((probabilities(model, rare).argmax(1) == 2).float().mean()) for model in (head, plain)]
    assert recall[0] > recall[1]
    assert head.loss.class_counts.tolist() == [1, 1, 1]
