"""Pools drawn at random, so that no rule can memorise the real ones."""

from __future__ import annotations

import numpy as np

from icda_bench.studies.verdicts.pools import Pool


def gaussian_pool(seed: int, samples: int = 8000) -> Pool:
    """Classes made of Gaussian clusters in a random number of dimensions, with a random spread and distance.

    Everything follows from `seed`: 2 to 10 classes, 1 to 3 clusters each, 16 to 512 dimensions of which a part carries the
    class, variances that fall by a power law as those of real embeddings do, and an attribute with clusters of its own.
    """
    generator = np.random.default_rng([seed, 77])
    classes, clusters = int(generator.choice([2, 2, 3, 4, 6, 10])), int(generator.integers(1, 4))
    width = int(generator.choice([16, 64, 128, 256, 512]))
    spread = np.arange(1, width + 1) ** -generator.uniform(0.2, 0.8)
    targets = generator.integers(0, classes, samples)
    cluster = generator.integers(0, clusters, samples)
    centres = _directions(generator, classes * clusters, width) * generator.uniform(1.2, 3.0)
    attribute = generator.integers(0, 2, samples)
    shifts = _directions(generator, 2, width) * generator.uniform(2.5, 4.0)
    noise = generator.normal(size=(samples, width))
    whitened = noise + centres[targets * clusters + cluster] + shifts[attribute]
    rotation = np.linalg.qr(generator.normal(size=(width, width)))[0]
    features = (whitened * spread) @ rotation
    return Pool(f"gaussian{seed}", features.astype(np.float32), targets, {"cluster": attribute})


def _directions(generator: np.random.Generator, count: int, width: int) -> np.ndarray:
    vectors = generator.normal(size=(count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
