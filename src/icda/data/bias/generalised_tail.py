"""Generalised long tails: training sets with rare classes and, in each class, rare attributes.

The attributes are clusters within each class, found by k-means and numbered by size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.errors import InputError

CLUSTERS = 6
RESTARTS, MAX_STEPS = 10, 100  # of k-means
ATTRIBUTE_NAMES = ("common", "middling", "rare")
ATTRIBUTES = len(ATTRIBUTE_NAMES)
RATIO = (7, 2, 1)  # how often each attribute comes, except in Test-GBL
# Which training and which test set make up a protocol.
PROTOCOLS = {"clt": ("train_glt", "test_cbl"), "glt": ("train_glt", "test_gbl"), "alt": ("train_cbl", "test_gbl")}


@dataclass(frozen=True)
class TailSizes:
    """How much each part takes. The defaults are those of ImageNet-GLT.

    `train` is the intended size of each class in Train-GLT, `balanced` that of every class in Train-CBL. Test-GBL takes
    `test_gbl` of each attribute, but at most one in `test_gbl_divisor` of the class's smallest; Test-CBL `test_cbl`
    times 7, 2 and 1; metadata up to `metadata` of each cluster. With `share_tests` both tests may hold the same
    samples.
    """

    train: Sequence[int]
    balanced: int = 145
    test_gbl: int = 20
    test_gbl_divisor: int = 4
    test_cbl: int = 6
    metadata: int = 10
    share_tests: bool = False


@dataclass(frozen=True)
class GeneralisedTail:
    """Positions of the samples in each part, ascending, and the attribute (N,) of every sample of the pool."""

    train_glt: Tensor
    train_cbl: Tensor
    test_gbl: Tensor
    test_cbl: Tensor
    metadata: Tensor
    attributes: Tensor

    def protocol(self, name: str) -> tuple[Tensor, Tensor]:
        """The training and the test positions of "clt", "glt" or "alt"."""
        train, test = PROTOCOLS[name]
        return getattr(self, train), getattr(self, test)


def attributes_of(clusters: Tensor) -> Tensor:
    """Clusters ranked by size, merged in pairs: 0 and 1 are attribute 0 (common), 4 and 5 attribute 2 (rare)."""
    return clusters // (CLUSTERS // ATTRIBUTES)


def shares(size: int) -> tuple[int, ...]:
    """`size` samples split 7:2:1; what does not come out even goes to the largest remainders, the common one first."""
    counts = [size * weight // sum(RATIO) for weight in RATIO]
    by_remainder = sorted(range(ATTRIBUTES), key=lambda a: -(size * RATIO[a] % sum(RATIO)))
    for attribute in by_remainder[: size - sum(counts)]:
        counts[attribute] += 1
    return tuple(counts)


def generalised_tail_from_features(features: Tensor, labels: Tensor, seed: int, sizes: TailSizes) -> GeneralisedTail:
    """Cluster `features` (N, A) within each class, then cut the pool into the parts of the GLT benchmark."""
    return generalised_tail(cluster_within_classes(features, labels, seed), labels, seed, sizes)


def generalised_tail(clusters: Tensor, labels: Tensor, seed: int, sizes: TailSizes) -> GeneralisedTail:
    """Cut a pool into Train-GLT, Train-CBL, Test-GBL, Test-CBL and metadata.

    After Tang et al., "Invariant Feature Learning for Generalized Long-Tailed Classification", ECCV 2022. `clusters`
    (N,) are numbered by size within each class. Test-GBL has equally many of each attribute in a class; all other parts
    but metadata have attributes 7:2:1. A training class that runs out of an attribute is made smaller as a whole, so
    that its ratio holds; Train-CBL is as large as the smallest class allows. Metadata takes at most half of what the
    tests left of a cluster. Differs from the original in this shrinking, in drawing by `seed`, and in cutting no
    validation set.
    """
    _check(labels, sizes)
    attributes = attributes_of(clusters)
    generator = generator_for(seed, "generalised tail")
    parts: dict[str, list[Tensor]] = {"test_gbl": [], "test_cbl": [], "metadata": []}
    left: list[list[Tensor]] = []
    for label in range(len(sizes.train)):
        pools = []
        for attribute in range(ATTRIBUTES):
            mine = ((labels == label) & (attributes == attribute)).nonzero().flatten()
            pools.append(mine[torch.randperm(len(mine), generator=generator)])
        test_gbl, test_cbl, pools = _take_tests(label, pools, sizes)
        parts["test_gbl"] += test_gbl
        parts["test_cbl"] += test_cbl
        left.append([_take_metadata(pool, clusters, sizes.metadata, parts["metadata"]) for pool in pools])
    train_glt, train_cbl = _training_sets(left, sizes)
    tests_and_metadata = {name: torch.cat(part).sort().values for name, part in parts.items()}
    return GeneralisedTail(train_glt, train_cbl, attributes=attributes, **tests_and_metadata)


def _training_sets(left: list[list[Tensor]], sizes: TailSizes) -> list[Tensor]:
    """Train-GLT and Train-CBL from what tests and metadata left of each attribute of each class."""
    long_tailed = [_fitting_size(pools, planned) for pools, planned in zip(left, sizes.train, strict=True)]
    balanced = [_fitting_size(pools, sizes.balanced) for pools in left]
    if 0 in balanced:  # and then in the other, too: whichever size was intended, not one sample is left
        raise InputError(f"class {balanced.index(0)} has nothing left to train on: make tests and metadata smaller.")
    sets = []
    for wanted in (long_tailed, [min(balanced)] * len(left)):
        counts = [count for size in wanted for count in shares(size)]
        pools = [pool for own in left for pool in own]
        sets.append(torch.cat([pool[:count] for pool, count in zip(pools, counts, strict=True)]).sort().values)
    return sets


def _check(labels: Tensor, sizes: TailSizes) -> None:
    if int(labels.min()) < 0 or int(labels.max()) != len(sizes.train) - 1:
        raise InputError(
            f"labels reach from {int(labels.min())} to {int(labels.max())}, and train names {len(sizes.train)} classes: "
            "give each class 0, 1, ... its size."
        )
    for name in ("train", "balanced", "test_gbl", "test_gbl_divisor", "test_cbl", "metadata"):
        size = min(sizes.train) if name == "train" else getattr(sizes, name)
        if size < (0 if name == "metadata" else 1):
            raise InputError(f"{name} is {size}: that is too small.")


def _take_tests(label: int, pools: list[Tensor], sizes: TailSizes) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Of a class's pools, one for each attribute: what Test-GBL takes, what Test-CBL takes, and what both leave."""
    smallest = min(len(pool) for pool in pools)
    balanced = min(sizes.test_gbl, smallest // sizes.test_gbl_divisor)
    if balanced < 1:
        raise InputError(
            f"class {label} has {smallest} samples of an attribute, and Test-GBL may take one in "
            f"{sizes.test_gbl_divisor}: lower test_gbl_divisor or drop the class."
        )
    start = 0 if sizes.share_tests else balanced
    ends = [start + weight * sizes.test_cbl for weight in RATIO]
    for name, pool, end in zip(ATTRIBUTE_NAMES, pools, ends, strict=True):
        if len(pool) < end:
            raise InputError(
                f"class {label} has {len(pool) - start} samples of its {name} attribute left, Test-CBL needs "
                f"{end - start}: lower test_cbl or drop the class."
            )
    pairs = list(zip(pools, ends, strict=True))
    left = [pool[max(balanced, end) :] for pool, end in pairs]
    return [pool[:balanced] for pool in pools], [pool[start:end] for pool, end in pairs], left


def _take_metadata(pool: Tensor, clusters: Tensor, count: int, into: list[Tensor]) -> Tensor:
    keep = torch.ones(len(pool), dtype=torch.bool)
    for cluster in clusters[pool].unique():
        mine = (clusters[pool] == cluster).nonzero().flatten()
        keep[mine[: min(count, len(mine) // 2)]] = False
    into.append(pool[~keep])
    return pool[keep]


def _fitting_size(pools: list[Tensor], largest: int) -> int:
    """The largest size up to `largest` whose shares the pools can give."""
    fitting = largest
    while any(count > len(pool) for count, pool in zip(shares(fitting), pools, strict=True)):
        fitting -= 1
    return fitting


def cluster_within_classes(features: Tensor, labels: Tensor, seed: int) -> Tensor:
    """The cluster (N,) of each sample within its class; cluster 0 is the class's largest, the last its smallest.

    k-means runs on each class by itself with a generator of its own: no class depends on the others.
    """
    names, counts = labels.unique(return_counts=True)
    if len(small := (counts < CLUSTERS).nonzero().flatten()):
        raise InputError(
            f"class {int(names[small[0]])} has {int(counts[small[0]])} samples, {CLUSTERS} clusters are needed in each "
            "class: drop the class."
        )
    clusters = torch.empty(len(labels), dtype=torch.long)
    for label in names.tolist():
        positions = (labels == label).nonzero().flatten()
        mine = features[positions]  # a class at a time: features may be mapped from a file larger than memory
        if not mine.isfinite().all():
            raise InputError(f"class {label} has features of NaN or infinity, which no centre is nearest to.")
        generator = generator_for(seed, "clusters within classes", label)
        clusters[positions] = rank_by_size(kmeans(mine, CLUSTERS, generator), CLUSTERS)
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
