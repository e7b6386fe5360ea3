import math

import pytest
import torch

from icda import ClassStatistics, Strength, augment, direct_strength

KINDS = ["full", "diagonal", "low_rank"]


def make_statistics(seed, kind, num_classes, dim, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    statistics = ClassStatistics(num_classes, dim, kind, rank=2).double()
    for c in range(num_classes):
        size = 6 + 5 * c  # classes of different sizes: pi is not uniform
        mixing = spread * torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        rows = torch.randn(size, dim, generator=generator, dtype=torch.float64) @ mixing
        centre = torch.randn(dim, generator=generator, dtype=torch.float64)
        statistics.update(rows + centre, torch.full((size,), c))
    return statistics


def dense(statistics):
    covariance = statistics.covariance
    return torch.diag_embed(covariance) if covariance.dim() == 2 else covariance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("own", "towards", "alpha", "lam"), [(0, 2, 0.6, 0.5), (1, 0, 1.0, 1.0), (2, 1, 0.1, 0.25)])
def test_draws_of_one_pair_have_the_mean_and_covariance_of_the_paper(kind, own, towards, alpha, lam):
    statistics = make_statistics(0, kind, 3, 3)
    features = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    per_class = torch.zeros(1, 3, dtype=torch.float64)
    per_class[0, towards] = alpha
    number = 40_000
    strength = Strength(per_class, torch.zeros(1))
    generator = torch.Generator().manual_seed(1)
    drawn = augment(features, torch.tensor([own]), statistics, strength, lam, number, generator)
    assert (drawn.targets == own).all()
    assert (drawn.towards == towards).all()
    assert (drawn.source == 0).all()

    sigma, mean = dense(statistics), statistics.mean
    expected_mean = features[0] + lam * alpha * mean[towards]
    expected = lam * (sigma[own] + alpha * sigma[towards])
    variances = expected.diagonal()
    error = (drawn.features.mean(0) - expected_mean).abs() / (variances / number).sqrt()
    assert error.max() < 4.5
    # The entries of a Gaussian's sample covariance have variance (s_aa s_bb + s_ab^2) / n.
    deviation = ((variances[:, None] * variances[None] + expected.square()) / number).sqrt()
    assert ((drawn.features.T.cov(correction=0) - expected).abs() / deviation).max() < 4.5


def test_pairs_are_drawn_in_proportion_to_strength_over_prior():
    statistics = make_statistics(1, "diagonal", 4, 2)
    generator = torch.Generator().manual_seed(2)
    targets = torch.tensor([0, 1, 2, 3, 3])
    per_class = torch.rand(5, 4, generator=generator, dtype=torch.float64).scatter(1, targets[:, None], 0)
    per_class[2, 0] = 0
    number = 50_000
    features = torch.zeros(5, 2, dtype=torch.float64)
    drawn = augment(features, targets, statistics, Strength(per_class, torch.zeros(5)), 0.5, number, generator)
    prior = [statistics.count[c].item() / statistics.count.sum().item() for c in range(4)]
    amounts = {(i, c): per_class[i, c].item() / prior[int(targets[i])] for i in range(5) for c in range(4)}
    whole = sum(amounts.values())
    statistic = 0.0
    for (i, c), amount in amounts.items():
        found = int(((drawn.source == i) & (drawn.towards == c)).sum())
        expected = number * amount / whole
        if expected == 0:
            assert found == 0
        else:
            statistic += (found - expected) ** 2 / expected
    assert statistic < 37  # chi-squared with 13 degrees of freedom: beyond with probability 0.0004
    assert torch.equal(drawn.targets, targets[drawn.source])


def jensen_bound(features, targets, weight, bias, statistics, per_class, lam):
    """L_J of mathematics 3.1: E log(1 + sum e^v) <= log(1 + sum E e^v), pair by pair."""
    num_classes, sigma = len(weight), dense(statistics)
    prior = statistics.count / statistics.count.sum()
    total, normaliser = 0.0, 0.0
    for i, y in enumerate(targets.tolist()):
        for c in range(num_classes):
            a = per_class[i, c].item()
            if c == y or a == 0:
                continue
            inner = 1.0
            for j in range(num_classes):
                if j == y:
                    continue
                d = weight[j] - weight[y]
                difference = (d @ features[i] + bias[j] - bias[y]).item()
                shift = lam * a * (d @ statistics.mean[c]).item()
                spread = lam / 2 * (d @ (sigma[y] + a * sigma[c]) @ d).item()
                inner += math.exp(difference + shift + spread)
            share = a / prior[y].item()
            total += share * math.log(inner)
            normaliser += share
    return total / normaliser


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_cross_entropy_of_the_draws_stays_under_jensens_bound(kind, spread):
    gaps = []
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        num_classes, dim, size = 2 + seed % 4, 3, 6
        statistics = make_statistics(seed, kind, num_classes, dim, spread)
        features = torch.randn(size, dim, generator=generator, dtype=torch.float64)
        targets = torch.randint(num_classes, (size,), generator=generator)
        weight = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
        bias = torch.randn(num_classes, generator=generator, dtype=torch.float64)
        strength, lam = direct_strength(features, targets, weight), 0.1 + 0.1 * seed
        if not strength.per_class.any():
            continue
        drawn = augment(features, targets, statistics, strength, lam, 4_000, generator)
        logits = drawn.features @ weight.T + bias
        losses = logits.logsumexp(1) - logits.gather(1, drawn.targets[:, None])[:, 0]
        error = losses.std().item() / len(losses) ** 0.5
        bound = jensen_bound(features, targets, weight, bias, statistics, strength.per_class, lam)
        assert losses.mean().item() <= bound + 4 * error
        gaps.append(bound - losses.mean().item())
    assert len(gaps) >= 8
    assert sum(gaps) > 0


def test_without_noise_the_bound_is_the_cross_entropy_of_the_draws():
    """Classes of one sample have no covariance, so that Jensen's step is an equality."""
    statistics = ClassStatistics(2, 3).double()
    statistics.update(torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]), torch.tensor([0, 1]))
    features, targets = torch.tensor([[0.5, 1.0, -1.0]], dtype=torch.float64), torch.tensor([0])
    weight = torch.tensor([[1.0, 0.2, 0.0], [0.3, 1.0, -1.0]], dtype=torch.float64)
    bias = torch.tensor([0.1, -0.2], dtype=torch.float64)
    strength = direct_strength(features, targets, weight)
    drawn = augment(features, targets, statistics, strength, 0.5, 5)
    logits = drawn.features @ weight.T + bias
    bound = jensen_bound(features, targets, weight, bias, statistics, strength.per_class, 0.5)
    assert torch.nn.functional.cross_entropy(logits, drawn.targets).item() == pytest.approx(bound, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generator_draws_the_same_and_the_global_one_is_left_alone(kind):
    statistics = make_statistics(0, kind, 3, 4)
    features = torch.randn(5, 4, dtype=torch.float64)
    targets = torch.tensor([0, 1, 2, 0, 1])
    strength = direct_strength(features, targets, torch.randn(3, 4, dtype=torch.float64))
    before = torch.get_rng_state()
    first, second = (
        augment(features, targets, statistics, strength, 0.5, 20, torch.Generator().manual_seed(7)) for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_lambda_zero_gives_back_the_features():
    statistics = make_statistics(0, "full", 3, 4)
    features, targets = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    strength = direct_strength(features, targets, torch.randn(3, 4, dtype=torch.float64))
    drawn = augment(features, targets, statistics, strength, 0.0, 20)
    assert torch.equal(drawn.features, features[drawn.source])


def test_features_keep_their_type_whatever_the_statistics_are():
    statistics = make_statistics(0, "full", 3, 4)
    features, targets = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    drawn = augment(features, targets, statistics, direct_strength(features, targets, torch.randn(3, 4)), 0.5, 20)
    assert drawn.features.dtype == torch.float32


@pytest.mark.parametrize(("lam", "number"), [(-0.1, 5), (0.5, 0)])
def test_a_negative_lambda_or_no_draws_are_refused(lam, number):
    statistics = make_statistics(0, "full", 3, 4)
    strength = Strength(torch.tensor([[0.0, 0.5, 0.5]]), torch.zeros(1))
    with pytest.raises(ValueError, match="lam must not be negative and num_samples be at least 1"):
        augment(torch.zeros(1, 4), torch.tensor([0]), statistics, strength, lam, number)


def test_a_target_without_statistics_is_named():
    statistics = ClassStatistics(3, 4)
    statistics.update(torch.randn(4, 4), torch.tensor([0, 1, 0, 1]))
    strength = Strength(torch.tensor([[0.5, 0.5, 0.0]]), torch.zeros(1))
    with pytest.raises(ValueError, match="class 2 has no statistics"):
        augment(torch.zeros(1, 4), torch.tensor([2]), statistics, strength, 0.5, 5)


def test_strengths_that_are_all_zero_are_refused():
    statistics = make_statistics(0, "full", 3, 4)
    with pytest.raises(ValueError, match="all strengths are zero"):
        augment(torch.zeros(1, 4), torch.tensor([0]), statistics, Strength(torch.zeros(1, 3), torch.zeros(1)), 0.5, 5)
