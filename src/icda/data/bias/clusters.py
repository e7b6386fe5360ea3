"""Pretext attributes: clusters within each class, found by k-means and numbered by size."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.errors import InputError

CLUSTERS = 6
RESTARTS, MAX_STEPS = 10, 100


def cluster_within_classes(features: Tensor, labels: Tensor, seed: int, num_clusters: int = CLUSTERS) -> Tensor:
    """The cluster (N,) of each sample within its class; cluster 0 is the class's largest, the last its smallest.

    k-means runs on each class by itself, so cluster 2 of one class has nothing to do with cluster 2 of another. Each
    class has a generator of its own: what happens to one does not depend on the others.
    """
    _check(features, labels, num_clusters)
    clusters = torch.empty(len(labels), dtype=torch.long)
    for label in labels.unique().tolist():
        positions = (labels == label).nonzero().flatten()
        mine = features[positions]  # a class at a time: features may be mapped from a file larger than memory
        if not mine.isfinite().all():
            raise InputError(f"class {label} has features of NaN or infinity, which no centre is nearest to.")
        generator = generator_for(seed, "clusters within classes", label)
        clusters[positions] = rank_by_size(kmeans(mine, num_clusters, generator), num_clusters)
    return clusters


def kmeans(points: Tensor, num_clusters: int, generator: torch.Generator, restarts: int = RESTARTS) -> Tensor:
    """The cluster (N,) of each of `points` (N, A): the best of `restarts` runs of Lloyd's algorithm, in float64.

    Each run starts with k-means++ (Arthur and Vassilvitskii, SODA 2007) and ends when no point changes its cluster.
    The best run has the smallest sum of squared distances to the centres, the earliest one if several have it.
    """
    points = points.double()
    runs = [_lloyd(points, _spread_start(points, num_clusters, generator)) for _ in range(restarts)]
    return min(runs, key=lambda run: run[1])[0]


def rank_by_size(clusters: Tensor, num_clusters: int) -> Tensor:
    """The same clusters, numbered from the largest to the smallest; of two equally large ones the first stays first."""
    order = clusters.bincount(minlength=num_clusters).argsort(descending=True, stable=True)
    return order.argsort()[clusters]


def _check(features: Tensor, labels: Tensor, num_clusters: int) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InputError(
            f"expected features (N, A) and labels (N,), got {tuple(features.shape)} and {tuple(labels.shape)}."
        )
    names, counts = labels.unique(return_counts=True)
    small = (counts < num_clusters).nonzero().flatten()
    if num_clusters < 1 or len(small):
        which = f"class {int(names[small[0]])} has {int(counts[small[0]])} samples, " if len(small) else ""
        raise InputError(f"{which}{num_clusters} clusters are needed in each class: ask for fewer or drop the class.")


def _spread_start(points: Tensor, num_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++: each further centre is a point drawn with probability proportional to its squared distance."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    nearest = _squared_distances(points, points[chosen]).flatten()
    for _ in range(num_clusters - 1):
        # Where all points lie on centres any will do: the cluster it starts stays empty.
        weights = nearest if float(nearest.max()) > 0 else torch.ones_like(nearest)
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        nearest = torch.minimum(nearest, _squared_distances(points, points[chosen[-1:]]).flatten())
    return points[chosen]


def _lloyd(points: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    """Assign and average in turns; gives the clusters and the sum of squared distances."""
    clusters = torch.full((len(points),), -1)
    for _ in range(MAX_STEPS):
        distances = _squared_distances(points, centres)
        moved = distances.argmin(1)
        if torch.equal(moved, clusters):
            break
        clusters = moved
        counts = clusters.bincount(minlength=len(centres))
        sums = torch.zeros_like(centres).index_add_(0, clusters, points)
        # A centre that lost its last point stays where it is.
        centres = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
    own = _squared_distances(points, centres).gather(1, clusters[:, None])
    return clusters, float(own.sum())


def _squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    squares = points.square().sum(1, keepdim=True) + centres.square().sum(1) - 2 * points @ centres.T
    return squares.clamp(min=0)  # rounding can leave a point on a centre a little below zero
