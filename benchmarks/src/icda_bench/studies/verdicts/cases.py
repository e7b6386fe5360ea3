"""Biases planted in a pool: what is wrong with the training part is known, and the test part has nothing wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icda_bench.studies.features import FeaturePart

TEST_SHARE, TEST_MOST = 0.3, 3000


@dataclass(frozen=True)
class Plan:
    """What to plant. Zero or one stands for nothing: `minority` 0, `noise` 0, `tail` 1 is the pool as it is.

    `attribute` is the name of a natural attribute of the pool, "painted", or "direction": one fixed vector per value, of
    `strength` standard deviations, is added to the standardised features. `classes` 0 takes them all; fewer are drawn, or,
    if `merged`, all are put together into so many by chance.
    """

    pool: str
    size: int
    classes: int = 0
    attribute: str = ""
    values: int = 2
    strength: float = 4.0
    minority: float = 0.0
    noise: float = 0.0
    flips: str = "symmetric"  # or "next", or "sided": `noise` of the first class's labels become the second's
    tail: float = 1.0
    merged: bool = False
    seed: int = 0

    @property
    def kind(self) -> str:
        """What is wrong, in one word or two."""
        parts = (("shortcut", self.minority > 0), ("noise", self.noise > 0), ("tail", self.tail > 1))
        return "+".join(name for name, wrong in parts if wrong) or "clean"


@dataclass(frozen=True)
class Case:
    """A training part with its biases, and an unbiased test part. Groups are (class, attribute) as one number."""

    plan: Plan
    features: np.ndarray
    targets: np.ndarray
    clean_targets: np.ndarray
    attributes: np.ndarray
    test_features: np.ndarray
    test_targets: np.ndarray
    test_groups: np.ndarray


def plant(pool: FeaturePart, plan: Plan) -> Case:
    """Draw a training and a test part from the pool and plant what the plan says in the first."""
    generator = np.random.default_rng([plan.seed, *plan.pool.encode()])
    rows, targets = _chosen_classes(pool, plan, generator)
    order = generator.permutation(len(rows))
    tested = min(int(TEST_SHARE * len(rows)), TEST_MOST)
    test, train = order[:tested], order[tested:]
    values = _natural(pool, plan, rows)
    if values is None:
        train = train[_drawn(targets[train], None, plan, generator)]
        values = np.zeros(len(rows), np.int64)
        if plan.attribute:
            values[train] = _assigned(targets[train], plan, generator)
            values[test] = generator.integers(0, plan.values, len(test))
    else:
        train = train[_drawn(targets[train], values[train], plan, generator)]
    features = _marked(pool, plan, rows, values, generator)
    clean = targets[train]
    used = int(values.max()) + 1
    return Case(
        plan,
        features[train],
        flipped(clean, plan.noise, plan.flips, generator),
        clean,
        values[train],
        features[test],
        targets[test],
        targets[test] * used + values[test],
    )


def flipped(targets: np.ndarray, rate: float, flips: str, generator: np.random.Generator) -> np.ndarray:
    """A share `rate` of the labels moved to another class: any alike, or the next one; or the first class's labels alone.

    >>> flipped(np.array([0, 1, 2]), 1.0, "next", np.random.default_rng(0)).tolist()
    [1, 2, 0]
    """
    if rate == 0:
        return targets
    classes = int(targets.max()) + 1
    movable = np.flatnonzero(targets == 0) if flips == "sided" else np.arange(len(targets))
    moved = np.zeros(len(targets), bool)
    moved[generator.permutation(movable)[: round(rate * len(movable))]] = True
    steps = generator.integers(1, classes, len(targets)) if flips == "symmetric" else 1
    return np.where(moved, (targets + steps) % classes, targets)


def tail_counts(largest: int, ratio: float, classes: int) -> np.ndarray:
    """Class sizes that fall by one factor from class to class.

    >>> tail_counts(1000, 100, 3).tolist()
    [1000, 100, 10]
    """
    return np.maximum(2, np.floor(largest * ratio ** (-np.arange(classes) / max(classes - 1, 1)) + 1e-9)).astype(int)


def _chosen_classes(pool: FeaturePart, plan: Plan, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the classes that the plan takes, and their labels numbered again in a random order."""
    known = np.unique(pool.targets)
    if plan.merged and plan.classes:
        numbers = generator.permutation(np.arange(int(known.max()) + 1) % plan.classes)
        return np.arange(len(pool.targets)), numbers[pool.targets]
    chosen = generator.permutation(known)[: plan.classes or len(known)]
    rows = np.flatnonzero(np.isin(pool.targets, chosen))
    numbers = np.zeros(int(known.max()) + 1, np.int64)
    numbers[chosen] = np.arange(len(chosen))
    return rows, numbers[pool.targets[rows]]


def _natural(pool: FeaturePart, plan: Plan, rows: np.ndarray) -> np.ndarray | None:
    """The pool's own attribute as values 0 .. V-1, paired with the classes in a fixed order; None if there is none."""
    if plan.attribute in ("", "painted", "direction"):
        return None
    return pool.attributes[plan.attribute][rows] % plan.values


def _assigned(targets: np.ndarray, plan: Plan, generator: np.random.Generator) -> np.ndarray:
    """Attributes for samples that can be given any: tied to the label, or, without a minority, by chance."""
    if plan.minority == 0:
        return generator.integers(0, plan.values, len(targets))
    against = generator.random(len(targets)) < plan.minority
    steps = generator.integers(1, plan.values, len(targets)) if plan.values > 2 else 1
    return (targets + np.where(against, steps, 0)) % plan.values  # most samples of class c have the value c


def _drawn(targets: np.ndarray, values: np.ndarray | None, plan: Plan, generator: np.random.Generator) -> np.ndarray:
    """Which of the samples are trained on: as many per class, and per class and attribute, as the plan says."""
    classes = int(targets.max()) + 1
    shares = tail_counts(10**6, plan.tail, classes) / 10**6 if plan.tail > 1 else np.ones(classes)
    natural = plan.tail == 1 and plan.minority == 0
    if natural:  # the pool's own class sizes
        shares = np.bincount(targets, minlength=classes) / np.bincount(targets, minlength=classes).max()
    cells: list[tuple[int, int | None, float]] = [(c, None, shares[c]) for c in range(classes)]
    if values is not None and plan.minority > 0:
        cells = []
        for c in range(classes):
            for a in range(plan.values):
                part = 1 - plan.minority if a == c % plan.values else plan.minority / (plan.values - 1)
                cells.append((c, a, shares[c] * part))
    pools = [np.flatnonzero((targets == c) & ((values == a) if a is not None else True)) for c, a, _ in cells]
    wanted = np.array([share for *_, share in cells])
    scale = min(plan.size / wanted.sum(), min(len(rows) / share for rows, share in zip(pools, wanted, strict=True)))
    taken = [
        generator.permutation(rows)[: max(1, round(scale * share))] for rows, share in zip(pools, wanted, strict=True)
    ]
    return np.sort(np.concatenate(taken))


def _marked(
    pool: FeaturePart, plan: Plan, rows: np.ndarray, values: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    features = pool.features[rows]
    if plan.attribute == "painted":
        assert pool.painted is not None
        return np.where((values == 1)[:, None], pool.painted[rows], features)
    if plan.attribute != "direction":
        return features
    scale = features.std(0)
    vectors = generator.normal(size=(plan.values, features.shape[1])).astype(np.float32)
    vectors *= plan.strength / np.sqrt(2) / np.linalg.norm(vectors, axis=1, keepdims=True)
    return features + vectors[values] * np.where(scale > 1e-6, scale, 0).astype(np.float32)
