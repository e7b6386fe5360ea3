import itertools

import pytest
import torch

from icda.data.bias.clusters import cluster_within_classes, kmeans, rank_by_size
from icda.data.generators import generator_for


def naive_inertia(points: list[list[float]], clusters: tuple[int, ...]) -> float:
    total = 0.0
    for cluster in set(clusters):
        mine = [point for point, own in zip(points, clusters, strict=True) if own == cluster]
        centre = [sum(column) / len(mine) for column in zip(*mine, strict=True)]
        total += sum((x - c) ** 2 for point in mine for x, c in zip(point, centre, strict=True))
    return total


def blobs(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Six far blobs of 12, 10, 8, 6, 4, 2 points in a random order, and the blob of each."""
    blob = torch.arange(6).repeat_interleave(torch.tensor([12, 10, 8, 6, 4, 2]))
    blob = blob[torch.randperm(len(blob), generator=generator)]
    centres = 100 * torch.eye(6)
    return centres[blob] + torch.randn(len(blob), 6, generator=generator), blob


@pytest.mark.parametrize("seed", range(5))
def test_far_blobs_are_found_and_numbered_by_size(seed: int) -> None:
    points, blob = blobs(generator_for(seed, "blobs"))
    assert torch.equal(cluster_within_classes(points, torch.zeros(len(blob), dtype=torch.long), seed), blob)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_partition_of_a_few_points_is_tighter(seed: int) -> None:
    points = torch.randn(8, 2, generator=generator_for(seed, "few points"))
    found = kmeans(points, 3, generator_for(seed, "k-means"), restarts=30)
    rows = points.double().tolist()
    best = min(naive_inertia(rows, clusters) for clusters in itertools.product(range(3), repeat=8))
    assert naive_inertia(rows, tuple(found.tolist())) == pytest.approx(best, rel=1e-9)


def test_each_point_is_nearest_to_the_mean_of_its_own_cluster() -> None:
    points = torch.randn(200, 5, generator=generator_for(0, "cloud"), dtype=torch.float64)
    clusters = kmeans(points, 6, generator_for(0, "k-means"))
    centres = torch.stack([points[clusters == cluster].mean(0) for cluster in range(6)])
    assert torch.equal(torch.cdist(points, centres).argmin(1), clusters)


def test_a_seed_decides_and_a_class_is_clustered_without_regard_to_the_others() -> None:
    points, labels = torch.randn(300, 8, generator=generator_for(0, "cloud")), torch.arange(300) % 3
    first = cluster_within_classes(points, labels, 0)
    assert torch.equal(first, cluster_within_classes(points, labels, 0))
    assert not torch.equal(first, cluster_within_classes(points, labels, 1))
    alone = labels == 2
    assert torch.equal(cluster_within_classes(points[alone], labels[alone], 0), first[alone])


def test_equal_points_leave_clusters_empty() -> None:
    points = torch.tensor([[1.0, 2.0]] * 7 + [[5.0, 5.0]] * 3)
    clusters = cluster_within_classes(points, torch.zeros(10, dtype=torch.long), 0)
    assert clusters.tolist() == [0] * 7 + [1] * 3
    assert rank_by_size(torch.tensor([1, 1, 0, 0, 2, 2, 2]), 4).tolist() == [2, 2, 1, 1, 0, 0, 0]  # equals keep order


WRONG = r"features \(N, A\) and labels \(N,\)"


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        *((torch.zeros(shape), [0] * 10, WRONG) for shape in ((10,), (10, 2, 2), (9, 2))),
        (torch.randn(15, 2), [2] * 10 + [4] * 5, "class 4 has 5 samples, 6 clusters are needed"),
        (torch.full((20, 2), float("nan")), [0, 1] * 10, "class 0 has features of NaN"),
    ],
)
def test_what_cannot_be_clustered_is_refused(points: torch.Tensor, labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster_within_classes(points, torch.tensor(labels), 0)
