import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch

from icda.data.bias.generalised_tail import (
    TailSizes,
    attributes_of,
    cluster_within_classes,
    generalised_tail,
    generalised_tail_from_features,
    kmeans,
    rank_by_size,
    shares,
)
from icda.data.generators import generator_for

CLUSTER_SIZES = ((90, 70, 50, 40, 30, 20), (60, 50, 30, 20, 12, 8), (200, 100, 60, 50, 40, 30))
SIZES = TailSizes([100, 40, 10], balanced=50, test_gbl=5, test_cbl=2, metadata=3)


def pool(seed=0):
    """Clusters and labels of a shuffled pool with `CLUSTER_SIZES`."""
    pairs = [
        (cluster, label)
        for label, sizes in enumerate(CLUSTER_SIZES)
        for cluster, size in enumerate(sizes)
        for _ in range(size)
    ]
    table = torch.tensor(pairs)[torch.randperm(len(pairs), generator=generator_for(seed, "pool"))]
    return table[:, 0], table[:, 1]


def count(part, labels, kinds):
    return Counter((int(labels[row]), int(kinds[row])) for row in part)


def rows(parts):
    names = ("train_glt", "train_cbl", "test_gbl", "test_cbl", "metadata")
    return {name: set(getattr(parts, name).tolist()) for name in names}


@pytest.mark.parametrize("seed", range(5))
def test_attributes_come_7_to_2_to_1_in_all_but_the_balanced_test(seed):
    clusters, labels = pool(seed)
    parts = generalised_tail(clusters, labels, seed, SIZES)
    assert torch.equal(parts.attributes, clusters // 2)
    for label, (glt, cbl) in enumerate([((70, 20, 10), 50), ((28, 8, 4), 50), ((7, 2, 1), 50)]):
        for attribute in range(3):
            cell = label, attribute
            assert count(parts.train_glt, labels, parts.attributes)[cell] == glt[attribute]
            assert count(parts.train_cbl, labels, parts.attributes)[cell] == cbl * (7, 2, 1)[attribute] // 10
            assert count(parts.test_cbl, labels, parts.attributes)[cell] == 2 * (7, 2, 1)[attribute]
            assert count(parts.test_gbl, labels, parts.attributes)[cell] == 5


@pytest.mark.parametrize("share_tests", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_no_sample_is_both_trained_on_and_tested_or_metadata(seed, share_tests):
    clusters, labels = pool(seed)
    parts = generalised_tail(clusters, labels, seed, replace(SIZES, share_tests=share_tests))
    taken = rows(parts)
    for name, part in taken.items():
        assert len(part) == len(getattr(parts, name))  # no sample twice
    for train in ("train_glt", "train_cbl"):
        for other in ("test_gbl", "test_cbl", "metadata"):
            assert not taken[train] & taken[other]
    assert not taken["metadata"] & (taken["test_gbl"] | taken["test_cbl"])
    assert bool(taken["test_gbl"] & taken["test_cbl"]) == share_tests


def test_shared_tests_cost_each_attribute_only_the_larger_of_both():
    clusters, labels = pool()
    alone = replace(SIZES, metadata=0, train=[10_000] * 3)
    common = {}
    for share in (False, True):
        parts = generalised_tail(clusters, labels, 0, replace(alone, share_tests=share))
        common[share] = count(parts.train_glt, labels, parts.attributes)[0, 0]
    # 160 common samples; the tests take 5 and 14 of them, or the larger of both.
    assert common == {False: 160 - 5 - 14, True: 160 - 14}


def test_metadata_are_balanced_by_cluster_and_a_small_one_gives_at_most_half_of_what_the_tests_left_it():
    clusters, labels = pool()
    counts = count(generalised_tail(clusters, labels, 0, SIZES).metadata, labels, clusters)
    assert {counts[0, cluster] for cluster in range(6)} == {3}
    parts = generalised_tail(clusters, labels, 0, replace(SIZES, metadata=1000))
    tested = rows(parts)["test_gbl"] | rows(parts)["test_cbl"]
    for label in range(3):
        for cluster in range(6):
            left = [
                row
                for row in ((labels == label) & (clusters == cluster)).nonzero().flatten().tolist()
                if row not in tested
            ]
            assert count(parts.metadata, labels, clusters)[label, cluster] == len(left) // 2


def test_a_seed_decides_everything_and_global_randomness_nothing():
    clusters, labels = pool()
    first = rows(generalised_tail(clusters, labels, 0, SIZES))
    torch.manual_seed(99)
    assert rows(generalised_tail(clusters, labels, 0, SIZES)) == first
    other = rows(generalised_tail(clusters, labels, 1, SIZES))
    assert all(other[name] != first[name] for name in first)


def test_the_balanced_test_takes_no_more_than_a_quarter_of_the_smallest_attribute():
    clusters, labels = pool()
    parts = generalised_tail(clusters, labels, 0, replace(SIZES, test_gbl=1000, metadata=0))
    counts = count(parts.test_gbl, labels, parts.attributes)
    for label, smallest in enumerate((50, 20, 70)):
        assert [counts[label, attribute] for attribute in range(3)] == [smallest // 4] * 3
    parts = generalised_tail(clusters, labels, 0, replace(SIZES, balanced=10_000, metadata=0))
    # Class 1 has 110 - 5 - 14 = 91 common samples left: seven tenths of 130.
    assert torch.bincount(labels[parts.train_cbl]).tolist() == [130] * 3


def test_a_class_short_of_an_attribute_shrinks_as_a_whole():
    clusters, labels = pool()
    parts = generalised_tail(clusters, labels, 0, replace(SIZES, train=[10_000, 10_000, 10_000], metadata=0))
    for label, available in enumerate(
        [(160 - 19, 90 - 9, 50 - 7), (110 - 19, 50 - 9, 20 - 7), (300 - 19, 110 - 9, 70 - 7)]
    ):
        counts = [count(parts.train_glt, labels, parts.attributes)[label, attribute] for attribute in range(3)]
        assert tuple(counts) == shares(sum(counts))
        assert any(wanted > have for wanted, have in zip(shares(sum(counts) + 1), available, strict=True))


def test_shares_add_up_grow_with_the_size_and_are_within_one_of_the_ratio():
    for size in range(300):
        parts = shares(size)
        assert sum(parts) == size
        assert all(abs(part - size * weight / 10) < 1 for part, weight in zip(parts, (7, 2, 1), strict=True))
        assert all(after >= before for before, after in zip(parts, shares(size + 1), strict=True))


def test_a_protocol_names_a_training_and_a_test_set():
    parts = generalised_tail(*pool(), 0, SIZES)
    assert parts.protocol("clt") == (parts.train_glt, parts.test_cbl)
    assert parts.protocol("glt") == (parts.train_glt, parts.test_gbl)
    assert parts.protocol("alt") == (parts.train_cbl, parts.test_gbl)


def test_features_are_clustered_within_classes_first():
    features = torch.randn(600, 4, generator=generator_for(0, "features"))
    labels = torch.arange(600) % 2
    sizes = TailSizes([20, 10], balanced=10, test_gbl=2, test_cbl=1, metadata=1)
    parts = generalised_tail_from_features(features, labels, 3, sizes)
    clusters = cluster_within_classes(features, labels, 3)
    assert torch.equal(parts.attributes, attributes_of(clusters))
    assert rows(parts) == rows(generalised_tail(clusters, labels, 3, sizes))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test_cbl": 16}, "class 1 has 105 samples of its common attribute left, Test-CBL needs 112"),
        ({"test_gbl_divisor": 30}, "class 1 has 20 samples of an attribute, and Test-GBL may take one in 30"),
        ({"train": [10, 10]}, "train names 2 classes"),
        ({"train": [10, 10, 10, 10]}, "train names 4 classes"),
        ({"balanced": 0}, "balanced is 0"),
        ({"metadata": -1}, "metadata is -1"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        generalised_tail(*pool(), 0, replace(SIZES, **changed))


def test_a_class_with_nothing_left_to_train_on_is_named():
    clusters = torch.tensor([0] * 7 + [2] * 3 + [4] * 2 + [0] * 70 + [2] * 30 + [4] * 20)
    labels = torch.tensor([0] * 12 + [1] * 120)
    sizes = TailSizes([5, 5], balanced=5, test_gbl=1, test_gbl_divisor=1, test_cbl=1, metadata=0, share_tests=True)
    with pytest.raises(ValueError, match="class 0 has nothing left to train on"):
        generalised_tail(clusters, labels, 0, sizes)


def naive_inertia(points, clusters):
    total = 0.0
    for cluster in set(clusters):
        mine = [point for point, own in zip(points, clusters, strict=True) if own == cluster]
        centre = [sum(column) / len(mine) for column in zip(*mine, strict=True)]
        total += sum((x - c) ** 2 for point in mine for x, c in zip(point, centre, strict=True))
    return total


def blobs(generator):
    """Six far blobs of 12, 10, 8, 6, 4, 2 points in a random order, and the blob of each."""
    blob = torch.arange(6).repeat_interleave(torch.tensor([12, 10, 8, 6, 4, 2]))
    blob = blob[torch.randperm(len(blob), generator=generator)]
    centres = 100 * torch.eye(6)
    return centres[blob] + torch.randn(len(blob), 6, generator=generator), blob


@pytest.mark.parametrize("seed", range(5))
def test_far_blobs_are_found_and_numbered_by_size(seed):
    points, blob = blobs(generator_for(seed, "blobs"))
    assert torch.equal(cluster_within_classes(points, torch.zeros(len(blob), dtype=torch.long), seed), blob)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_partition_of_a_few_points_is_tighter(seed):
    points = torch.randn(8, 2, generator=generator_for(seed, "few points"))
    found = kmeans(points, 3, generator_for(seed, "k-means"), restarts=30)
    rows = points.double().tolist()
    best = min(naive_inertia(rows, clusters) for clusters in itertools.product(range(3), repeat=8))
    assert naive_inertia(rows, tuple(found.tolist())) == pytest.approx(best, rel=1e-9)


def test_each_point_is_nearest_to_the_mean_of_its_own_cluster():
    points = torch.randn(200, 5, generator=generator_for(0, "cloud"), dtype=torch.float64)
    clusters = kmeans(points, 6, generator_for(0, "k-means"))
    centres = torch.stack([points[clusters == cluster].mean(0) for cluster in range(6)])
    assert torch.equal(torch.cdist(points, centres).argmin(1), clusters)


def test_a_seed_decides_and_a_class_is_clustered_without_regard_to_the_others():
    points, labels = torch.randn(300, 8, generator=generator_for(0, "cloud")), torch.arange(300) % 3
    first = cluster_within_classes(points, labels, 0)
    assert torch.equal(first, cluster_within_classes(points, labels, 0))
    assert not torch.equal(first, cluster_within_classes(points, labels, 1))
    alone = labels == 2
    assert torch.equal(cluster_within_classes(points[alone], labels[alone], 0), first[alone])


def test_equal_points_leave_clusters_empty():
    points = torch.tensor([[1.0, 2.0]] * 7 + [[5.0, 5.0]] * 3)
    clusters = cluster_within_classes(points, torch.zeros(10, dtype=torch.long), 0)
    assert clusters.tolist() == [0] * 7 + [1] * 3
    assert rank_by_size(torch.tensor([1, 1, 0, 0, 2, 2, 2]), 4).tolist() == [2, 2, 1, 1, 0, 0, 0]  # equals keep order


def test_what_cannot_be_clustered_is_refused():
    with pytest.raises(ValueError, match="class 4 has 5 samples, 6 clusters are needed"):
        cluster_within_classes(torch.randn(15, 2), torch.tensor([2] * 10 + [4] * 5), 0)
    with pytest.raises(ValueError, match="class 0 has features of NaN"):
        cluster_within_classes(torch.full((20, 2), float("nan")), torch.tensor([0, 1] * 10), 0)
