import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icda import ClassStatistics, ICDALoss
from icda.meta.moments import assign, normalised, with_values

KINDS = ["full", "diagonal", "low_rank"]
Batch = tuple[Tensor, Tensor]


def make_batch(seed, size, num_classes, dim, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(num_classes, (size,), generator=generator)
    mixing = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64) @ mixing + targets[:, None]
    return features.to(dtype), targets


def gather(batches):
    return torch.cat([features for features, _ in batches]), torch.cat([targets for _, targets in batches])


def make_statistics(kind, num_classes, dim, **options):
    options = {"rank": dim, **options}
    return ClassStatistics(num_classes, dim, kind, **options).double()


def numpy_moments(features, targets, num_classes, kind, weights=None):
    """Weighted mean and covariance (ddof=0) of each class, zero for a class not seen."""
    mass = np.ones(len(features)) if weights is None else weights.double().numpy()
    dim = features.shape[1]
    count, mean, covariance = np.zeros(num_classes), np.zeros((num_classes, dim)), np.zeros((num_classes, dim, dim))
    for c in range(num_classes):
        own = ((targets == c).numpy()) & (mass > 0)
        if own.any():
            rows = features.double().numpy()[own]
            count[c] = mass[own].sum()
            mean[c] = np.average(rows, axis=0, weights=mass[own])
            covariance[c] = np.cov(rows.T, ddof=0, aweights=mass[own]).reshape(dim, dim)
    if kind == "diagonal":
        covariance = np.diagonal(covariance, axis1=1, axis2=2).copy()
    return torch.from_numpy(count), torch.from_numpy(mean), torch.from_numpy(covariance)


def assert_moments(statistics, expected, atol=1e-11):
    found = (statistics.count, statistics.mean, statistics.covariance)
    for name, value, wanted in zip(("count", "mean", "covariance"), found, expected, strict=True):
        torch.testing.assert_close(value.double(), wanted, rtol=1e-9, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def snapshot(statistics):
    return {name: value.clone() for name, value in statistics.state_dict().items()}


def assert_same_state(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("num_classes", "dim", "sizes"), [(4, 5, [7, 1, 20, 3, 11]), (2, 1, [1, 1, 2, 5]), (30, 3, [8] * 12)]
)
def test_many_batches_give_numpy_mean_and_covariance(kind, num_classes, dim, sizes):
    statistics = make_statistics(kind, num_classes, dim)
    batches = [make_batch(seed, size, num_classes, dim) for seed, size in enumerate(sizes)]
    for features, targets in batches:
        statistics.update(features, targets)
    assert_moments(statistics, numpy_moments(*gather(batches), num_classes, kind))


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_keeps_exact_variances_and_means_when_the_rank_does_not_suffice(rank):
    batches = [make_batch(seed, 15, 3, 6) for seed in range(6)]
    statistics = make_statistics("low_rank", 3, 6, rank=rank)
    for features, targets in batches:
        statistics.update(features, targets)
    count, mean, covariance = numpy_moments(*gather(batches), 3, "full")
    torch.testing.assert_close(statistics.count, count)
    torch.testing.assert_close(statistics.mean, mean, rtol=0, atol=1e-12)
    variances = statistics.covariance.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(variances, covariance.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-11)
    assert not torch.allclose(statistics.covariance, covariance)
    assert (torch.linalg.eigvalsh(statistics.covariance) > -1e-12).all()


def test_low_rank_of_one_batch_keeps_the_strongest_directions():
    features, targets = make_batch(3, 60, 2, 6)
    statistics = make_statistics("low_rank", 2, 6, rank=2)
    statistics.update(features, targets)
    _, _, covariance = numpy_moments(features, targets, 2, "full")
    for c in range(2):
        values, vectors = torch.linalg.eigh(covariance[c])
        best = vectors[:, -2:] @ torch.diag(values[-2:]) @ vectors[:, -2:].T
        factor = statistics.factor[c] / statistics.count[c].sqrt()
        torch.testing.assert_close(factor.T @ factor, best, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_full_covariances_are_symmetric_and_no_variance_is_negative(kind):
    statistics = ClassStatistics(3, 8, kind, rank=3)
    for seed in range(20):
        statistics.update(*make_batch(seed, 10, 3, 8, torch.float32))
    covariance = statistics.covariance
    if kind == "diagonal":
        assert (covariance >= 0).all()
    else:
        torch.testing.assert_close(covariance, covariance.mT, rtol=1e-6, atol=1e-6)
        assert (torch.linalg.eigvalsh(covariance) > -1e-4).all()


@pytest.mark.parametrize(
    ("kind", "batch_size"),
    [*((kind, size) for kind in KINDS for size in (1, 250)), ("full", 20_000), ("diagonal", 20_000)],
)
def test_float32_variance_survives_a_large_mean_where_sums_of_squares_do_not(kind, batch_size):
    size = 20_000 if batch_size > 1 else 2_000
    generator = torch.Generator().manual_seed(0)
    values = (100 + 0.01 * torch.randn(size, 1, generator=generator, dtype=torch.float64)).float()
    true = values.double().var(correction=0).item()
    statistics = ClassStatistics(2, 1, kind)
    for part in values.split(batch_size):
        statistics.update(part, torch.zeros(len(part), dtype=torch.int64))
    assert statistics.mean.dtype == torch.float32
    assert statistics.covariance[0].item() == pytest.approx(true, rel=0.02)

    total, squares = torch.zeros(()), torch.zeros(())
    for part in values.split(batch_size):
        total, squares = total + part.sum(), squares + part.square().sum()
    naive = squares / size - (total / size) ** 2
    assert abs(naive.item() - true) > 0.02 * true


@pytest.mark.parametrize("kind", KINDS)
def test_only_classes_present_are_touched(kind):
    statistics = ClassStatistics(5, 4, kind, rank=2, forgetting=0.9)
    statistics.update(*make_batch(0, 40, 5, 4, torch.float32))
    before = snapshot(statistics)
    features, _ = make_batch(1, 6, 5, 4, torch.float32)
    statistics.update(features, torch.tensor([1, 3, 3, 1, 1, 3]))
    after = snapshot(statistics)
    for name, old in before.items():
        for untouched in (0, 2, 4):
            assert torch.equal(after[name][untouched], old[untouched]), (name, untouched)
        for touched in (1, 3):
            assert not torch.equal(after[name][touched], old[touched]), (name, touched)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_not_seen_has_zero_mean_and_covariance_and_one_sample_has_zero_covariance(kind):
    statistics = make_statistics(kind, 3, 4)
    statistics.update(torch.full((1, 4), 7.0), torch.tensor([1]))
    assert statistics.count.tolist() == [0, 1, 0]
    assert statistics.mean.tolist() == [[0.0] * 4, [7.0] * 4, [0.0] * 4]
    assert not statistics.covariance.any()


@pytest.mark.parametrize("kind", KINDS)
def test_one_very_frequent_label_among_many_rare_ones_gives_numpy_moments(kind):
    num_classes = 40
    targets = torch.cat([torch.zeros(60).long(), torch.arange(num_classes), torch.tensor([5, 5, 7])])
    targets = targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(1))]
    features = make_batch(2, len(targets), num_classes, 4)[0]
    wasteful = make_statistics(kind, num_classes, 4)
    wasteful.update(features, targets)
    padded = make_statistics(kind, num_classes, 4)
    for part in (targets == 0).nonzero().flatten().split(10):
        padded.update(features[part], targets[part])
    padded.update(features[targets != 0], targets[targets != 0])
    expected = numpy_moments(features, targets, num_classes, kind)
    assert_moments(wasteful, expected)
    assert_moments(padded, expected)


def test_features_that_require_gradients_leave_no_graph_behind():
    statistics = ClassStatistics(2, 3)
    statistics.update(torch.randn(4, 3, requires_grad=True) * 2, torch.tensor([0, 1, 0, 1]))
    assert not any(buffer.requires_grad for buffer in statistics.buffers())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_repetition(kind):
    repeated, weighted = make_statistics(kind, 3, 4), make_statistics(kind, 3, 4)
    for seed in range(4):
        features, targets = make_batch(seed, 12, 3, 4)
        times = torch.randint(0, 4, (12,), generator=torch.Generator().manual_seed(seed))
        weighted.update(features, targets, weights=times)
        repeated.update(features.repeat_interleave(times, 0), targets.repeat_interleave(times))
    assert_moments(weighted, (repeated.count, repeated.mean, repeated.covariance))


@pytest.mark.parametrize("kind", KINDS)
def test_fractional_weights_give_numpy_weighted_moments(kind):
    statistics = make_statistics(kind, 3, 4)
    batches = [make_batch(seed, 12, 3, 4) for seed in range(4)]
    weights = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for (features, targets), mass in zip(batches, weights, strict=True):
        statistics.update(features, targets, weights=mass)
    assert_moments(statistics, numpy_moments(*gather(batches), 3, kind, weights.flatten()))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_zero_change_nothing_and_stay_finite(kind):
    statistics = make_statistics(kind, 3, 4)
    features, targets = make_batch(0, 12, 3, 4)
    statistics.update(features, targets, weights=torch.zeros(12))
    assert not any(buffer.any() for buffer in statistics.buffers())
    statistics.update(features, targets)
    expected = (statistics.count.clone(), statistics.mean.clone(), statistics.covariance.clone())
    statistics.update(features + 1, targets, weights=torch.zeros(12))
    assert_moments(statistics, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_forgetting_weighs_a_sample_by_the_later_batches_that_hold_its_class(kind):
    rho = 0.7
    statistics = make_statistics(kind, 4, 3, forgetting=rho)
    batches = [make_batch(seed, 5, 4, 3) for seed in range(8)]
    for features, targets in batches:
        statistics.update(features, targets)
    weights = [
        rho ** sum(int((later == target).any()) for _, later in batches[step + 1 :])
        for step, (_, targets) in enumerate(batches)
        for target in targets
    ]
    expected = numpy_moments(*gather(batches), 4, kind, torch.tensor(weights, dtype=torch.float64))
    assert_moments(statistics, expected)


def test_shrinkage_damps_off_diagonals_of_classes_with_fewer_samples_than_dimensions():
    statistics = make_statistics("full", 2, 4, shrinkage=0.3)
    features = make_batch(0, 7, 2, 4)[0]
    targets = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    statistics.update(features, targets)
    _, _, covariance = numpy_moments(features, targets, 2, "full")
    for a in range(4):
        for b in range(4):
            expected = covariance[0, a, b] * (1.0 if a == b else 0.7)
            torch.testing.assert_close(statistics.covariance[0, a, b], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(statistics.covariance[1], covariance[1], rtol=0, atol=1e-12)


def test_shrinkage_is_read_not_written():
    shrunk, plain = make_statistics("full", 2, 4, shrinkage=0.3), make_statistics("full", 2, 4)
    for seed in range(3):
        batch = make_batch(seed, 3, 2, 4)
        shrunk.update(*batch)
        plain.update(*batch)
        shrunk.moments()
    assert_same_state(snapshot(shrunk), snapshot(plain))


def test_reading_moments_copies_no_covariance():
    for kind in ("full", "diagonal"):
        statistics = ClassStatistics(3, 4, kind)
        assert statistics.moments().scatter.data_ptr() == statistics.scatter.data_ptr()


@pytest.mark.parametrize("kind", KINDS)
def test_merge_equals_one_pass_over_all_samples(kind):
    batches = [make_batch(seed, 9, 4, 3) for seed in range(6)]
    parts = [make_statistics(kind, 4, 3) for _ in range(3)]
    for k, (features, targets) in enumerate(batches):
        parts[k % 3].update(features, targets)
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert merged is parts[0]
    assert_moments(merged, numpy_moments(*gather(batches), 4, kind))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(0, 12)] * 3),
    num_classes=st.integers(2, 6),
    dim=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
)
def test_merge_is_associative_and_commutative(sizes, num_classes, dim, kind, seed):
    parts = []
    for k, size in enumerate(sizes):
        part = make_statistics(kind, num_classes, dim)
        if size:
            part.update(*make_batch(seed + k, size, num_classes, dim))
        parts.append(part)
    a, b, c = parts
    left = copy.deepcopy(a).merge(copy.deepcopy(b)).merge(c)
    right = copy.deepcopy(a).merge(copy.deepcopy(b).merge(c))
    backwards = copy.deepcopy(c).merge(copy.deepcopy(b)).merge(a)
    expected = (left.count, left.mean, left.covariance)
    assert_moments(right, expected)
    assert_moments(backwards, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_empty_state_is_the_identity_of_merge(kind):
    statistics = make_statistics(kind, 4, 3)
    statistics.update(*make_batch(0, 20, 4, 3))
    expected = (statistics.count.clone(), statistics.mean.clone(), statistics.covariance.clone())
    assert_moments(make_statistics(kind, 4, 3).merge(statistics), expected)
    assert_moments(statistics.merge(make_statistics(kind, 4, 3)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_merge_leaves_the_other_as_it_was(kind):
    one, other = make_statistics(kind, 4, 3), make_statistics(kind, 4, 3)
    one.update(*make_batch(0, 20, 4, 3))
    other.update(*make_batch(1, 20, 4, 3))
    before = snapshot(other)
    one.merge(other)
    one.update(*make_batch(2, 20, 4, 3))
    assert_same_state(snapshot(other), before)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_gathered_in_float64_merge_into_float32_ones(kind):
    summary, running = make_statistics(kind, 4, 3), ClassStatistics(4, 3, kind)
    batches = [make_batch(seed, 20, 4, 3) for seed in range(3)]
    summary.update(*batches[0])
    running.update(*batches[1])
    running.merge(summary)
    running.update(*batches[2])
    assert running.mean.dtype == running.scatter.dtype == torch.float32
    assert_moments(running, numpy_moments(*gather(batches), 4, kind), atol=1e-3)


def test_merge_refuses_statistics_of_another_shape_or_kind_and_changes_nothing():
    statistics = make_statistics("full", 4, 3)
    statistics.update(*make_batch(0, 20, 4, 3))
    before = snapshot(statistics)
    for other in (ClassStatistics(4, 3, "diagonal"), ClassStatistics(5, 3), ClassStatistics(4, 2)):
        with pytest.raises(ValueError, match="cannot merge"):
            statistics.merge(other)
    assert_same_state(snapshot(statistics), before)


@pytest.mark.parametrize("kind", KINDS)
def test_assigned_moments_replace_means_and_covariances_and_keep_the_counts(kind):
    source, receiver = make_statistics(kind, 4, 3, rank=2), make_statistics(kind, 4, 3, rank=2)
    source.update(*make_batch(0, 40, 4, 3))
    receiver.update(*make_batch(1, 60, 4, 3))
    count = receiver.count.clone()
    assign(receiver, source.moments())
    assert_moments(receiver, (count, source.mean, source.covariance))
    mean, covariance = source.mean.clone(), source.covariance.clone()
    receiver.update(*make_batch(2, 60, 4, 3))
    assert torch.equal(source.mean, mean)
    assert torch.equal(source.covariance, covariance)


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_assigned_covariances_lose_their_negative_part(kind):
    statistics = make_statistics(kind, 2, 2)
    statistics.update(*make_batch(0, 40, 2, 2))
    mean, covariance = normalised(statistics.moments())
    angle = torch.tensor(0.3, dtype=torch.float64)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    values = torch.tensor([2.0, -1.0], dtype=torch.float64)
    indefinite = values if kind == "diagonal" else turn @ values.diag() @ turn.T
    expected = values.clamp(min=0) if kind == "diagonal" else turn @ values.clamp(min=0).diag() @ turn.T
    assign(statistics, with_values(statistics.moments(), [mean, indefinite.expand_as(covariance)]))
    torch.testing.assert_close(statistics.covariance, expected.expand_as(covariance), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_round_trip_continues_bit_for_bit(kind):
    original, restored = ClassStatistics(4, 3, kind, rank=2), ClassStatistics(4, 3, kind, rank=2)
    original.update(*make_batch(0, 20, 4, 3, torch.float32))
    restored.load_state_dict(original.state_dict())
    for statistics in (original, restored):
        statistics.update(*make_batch(1, 20, 4, 3, torch.float32))
    assert_same_state(snapshot(restored), snapshot(original))


@pytest.mark.parametrize("kind", KINDS)
def test_reset_forgets_everything(kind):
    statistics = ClassStatistics(4, 3, kind)
    statistics.update(*make_batch(0, 20, 4, 3, torch.float32))
    statistics.reset()
    assert_same_state(snapshot(statistics), snapshot(ClassStatistics(4, 3, kind)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cast", ["half", "bfloat16", "float"])
def test_casting_a_model_down_leaves_the_statistics_bit_identical(kind, cast):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), ClassStatistics(4, 3, kind))
    model[1].update(*make_batch(0, 50, 4, 3, torch.float32))
    before = snapshot(model[1])
    getattr(model, cast)()
    assert model[1].mean.dtype == torch.float32
    assert_same_state(snapshot(model[1]), before)


@pytest.mark.parametrize("kind", KINDS)
def test_double_gives_float64_and_keeps_the_values(kind):
    statistics = ClassStatistics(4, 3, kind)
    statistics.update(*make_batch(0, 20, 4, 3, torch.float32))
    before = snapshot(statistics)
    statistics.double()
    assert all(buffer.dtype == torch.float64 for buffer in statistics.buffers())
    for name, value in before.items():
        assert torch.equal(getattr(statistics, name), value.double())


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_changes_nothing(kind):
    batch = make_batch(0, 20, 4, 3, torch.float32)
    plain, autocast = ClassStatistics(4, 3, kind), ClassStatistics(4, 3, kind)
    plain.update(*batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast.update(*batch)
    assert_same_state(snapshot(autocast), snapshot(plain))


def test_half_precision_features_are_accumulated_in_float32():
    features, targets = make_batch(0, 20, 4, 3, torch.bfloat16)
    found, expected = ClassStatistics(4, 3), ClassStatistics(4, 3)
    found.update(features, targets)
    expected.update(features.float(), targets)
    assert_same_state(snapshot(found), snapshot(expected))


@pytest.mark.parametrize(
    "weights", [torch.tensor([1.0, -1.0, 1.0]), torch.tensor([1.0, float("nan"), 1.0]), torch.ones(2)]
)
def test_bad_weights_are_refused_and_nothing_is_lost(weights):
    statistics = ClassStatistics(2, 2)
    statistics.update(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    before = snapshot(statistics)
    with pytest.raises(ValueError, match="weights"):
        statistics.update(torch.randn(3, 2), torch.tensor([0, 1, 1]), weights=weights)
    assert_same_state(snapshot(statistics), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "at least 2 classes"),
        ({"covariance": "auto"}, "covariance must be one of"),
        ({"forgetting": 0.0}, "forgetting"),
        ({"forgetting": 1.1}, "forgetting"),
        ({"shrinkage": -0.1}, "shrinkage"),
        ({"covariance": "low_rank", "rank": 0}, "rank"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ClassStatistics(**{"num_classes": 3, "feature_dim": 4, **options})


# How each step's batch of 24 is cut: evenly, unevenly, and by class, so that a class stands on one rank only.
CUTS = [12, 5, 23, "by class"]


def rank_batches():
    batches = [make_batch(seed, 24, 7, 4, torch.float32) for seed in range(len(CUTS))]
    return [(features, targets.sort().values) if cut == "by class" else (features, targets)
            for (features, targets), cut in zip(batches, CUTS, strict=True)]  # fmt: skip


def rank_statistics(kind):
    return ClassStatistics(7, 4, kind, rank=4, forgetting=0.9)


def update_on_rank(rank):
    result = {}
    for kind in KINDS:
        statistics = rank_statistics(kind)
        for (features, targets), cut in zip(rank_batches(), CUTS, strict=True):
            mine = targets < 3 if cut == "by class" else torch.arange(24) < cut
            mine = mine if rank == 0 else ~mine
            statistics.update(features[mine], targets[mine])
        covariance = statistics.covariance
        result[kind] = {"count": statistics.count, "mean": statistics.mean, "covariance": covariance}
    return result


@pytest.fixture(scope="module")
def on_two_ranks(run_on_ranks):
    return run_on_ranks(update_on_rank, world_size=2)


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_with_parts_of_each_batch_give_the_statistics_of_one_process(kind, on_two_ranks):
    statistics = rank_statistics(kind)
    for features, targets in rank_batches():
        statistics.update(features, targets)
    for result in on_two_ranks:
        torch.testing.assert_close(result[kind]["count"], statistics.count, rtol=1e-6, atol=0)
        torch.testing.assert_close(result[kind]["mean"], statistics.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(result[kind]["covariance"], statistics.covariance, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_hold_the_same_statistics(kind, on_two_ranks):
    assert_same_state(on_two_ranks[0][kind], on_two_ranks[1][kind])


def test_shrinkage_of_a_low_rank_covariance_is_that_of_the_full_one():
    features, targets = torch.randn(12, 5, dtype=torch.float64), torch.tensor([0] * 9 + [1] * 3)
    full, low = (
        ClassStatistics(2, 5, kind, rank=5, shrinkage=0.3).double()  # type: ignore[arg-type]
        for kind in ("full", "low_rank")
    )
    for statistics in (full, low):
        statistics.update(features, targets)
    torch.testing.assert_close(low.covariance, full.covariance, rtol=0, atol=1e-12)
    exact = torch.cov(features[targets == 1].T, correction=0)
    assert not torch.allclose(full.covariance[1], exact), "three samples in five dimensions must be shrunk"
    torch.testing.assert_close(full.covariance[0], torch.cov(features[targets == 0].T, correction=0))


def test_resetting_leaves_a_graph_built_before_it_alone():
    loss, head = ICDALoss(2, 3, covariance="diagonal"), torch.nn.Linear(3, 2)
    value = loss(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1]), head)
    loss.statistics.reset()
    value.backward()
    assert torch.isfinite(head.weight.grad).all()
    assert loss.statistics.count.sum() == 0
