"""Which cases are planted: every kind and every pair of kinds on every pool, sizes and rates drawn by a fixed seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from icda_bench.studies.verdicts.cases import Plan

SIZES = (200, 400, 800, 1500, 2500)
LARGE = 20_000


class PoolFacts(NamedTuple):
    """Classes of a pool, 0 if they follow from its seed, and the attribute that a shortcut is made of."""

    classes: int
    attribute: str


FACTS = {
    "digits": PoolFacts(10, "direction"),
    "mnist": PoolFacts(10, "direction"),
    "cifar10": PoolFacts(10, "painted"),
    "tiny_imagenet": PoolFacts(100, "direction"),
    "waterbirds": PoolFacts(2, "place"),
    "imdb": PoolFacts(2, "long"),
    "hatecheck": PoolFacts(2, "people"),
    "multinli": PoolFacts(3, "direction"),
    "adult": PoolFacts(2, "sex"),
    "compas": PoolFacts(2, "sex"),
}
SYNTHETIC = tuple(f"gaussian{seed}" for seed in range(8))
MERGED = ("tiny_imagenet",)  # 50 samples per class: few classes are made by putting several together
HOLDS_LARGE = ("mnist", "adult")


def plans_of(pool: str) -> list[Plan]:
    """All cases of a pool, in an order such that the first ones already show every kind."""
    draw = _Draw(pool)
    plans: list[Plan] = []
    for part in (_first, _second, _third):
        planned = [{"merged": pool in MERGED, **plan} for plan in part(draw)]
        plans += [Plan(pool, seed=len(plans) + number, **plan) for number, plan in enumerate(planned)]
    if pool in HOLDS_LARGE:
        shortcut = {"attribute": draw.attribute, "minority": 0.05, "classes": draw.few()}
        for plan in ({}, shortcut, {"noise": 0.2}):
            plans.append(Plan(pool, LARGE, seed=len(plans), **plan))
    fourth = [{"merged": pool in MERGED, **plan} for plan in _fourth(draw)]
    return plans + [Plan(pool, seed=len(plans) + number, **plan) for number, plan in enumerate(fourth)]


class _Draw:
    """Sizes, numbers of classes and directions of one pool, drawn in turn."""

    def __init__(self, pool: str) -> None:
        facts = FACTS.get(pool, PoolFacts(0, "cluster"))
        self.attribute, self.classes = facts.attribute, facts.classes
        self._generator = np.random.default_rng([1, *pool.encode()])

    def size(self, least: int = 0) -> int:
        return int(self._generator.choice([size for size in SIZES if size >= least]))

    def few(self) -> int:
        """Two to four classes of a pool that has more; else all."""
        return int(self._generator.choice([2, 2, 3, 4])) if self.classes > 2 else 0

    def some(self) -> int:
        """All classes, or a few, or for a hundred of them ten."""
        return int(self._generator.choice([self.few(), min(self.classes, 10), 0])) if self.classes > 2 else 0

    def direction(self, classes: int) -> dict[str, object]:
        values = int(self._generator.choice([2, 2, 3, 4]))
        most = classes or self.classes or 2
        strength = float(self._generator.choice([3.0, 5.0, 8.0]))
        return {"attribute": "direction", "values": max(2, min(values, most)), "strength": strength, "classes": classes}


def _first(draw: _Draw) -> list[dict]:
    return [
        {"size": draw.size(), "classes": draw.some()},
        {"size": draw.size(400), "attribute": draw.attribute, "minority": 0.05, "classes": draw.few()},
        {"size": draw.size(), "noise": 0.2, "classes": draw.some()},
        {"size": draw.size(800), "tail": 10.0, "classes": draw.some()},
        {"size": draw.size(800), "attribute": draw.attribute, "minority": 0.05, "noise": 0.2, "classes": draw.few()},
        {"size": draw.size(1500), "attribute": draw.attribute, "minority": 0.05, "tail": 10.0, "classes": draw.few()},
        {"size": draw.size(800), "noise": 0.2, "tail": 10.0, "classes": draw.some()},
    ]


def _second(draw: _Draw) -> list[dict]:
    return [
        {"size": draw.size(400), **draw.direction(draw.few()), "minority": 0.1},
        {"size": draw.size(400), "noise": 0.1, "classes": draw.some()},
        {"size": draw.size(), "attribute": draw.attribute, "classes": draw.few()},
        {"size": draw.size(800), "attribute": draw.attribute, "minority": 0.1, "classes": draw.few()},
        {"size": draw.size(800), "noise": 0.4 if draw.classes != 2 else 0.3, "classes": draw.some()},
        {"size": draw.size(1500), "tail": 100.0, "classes": draw.some()},
        {"size": draw.size(800), **draw.direction(draw.few()), "minority": 0.1, "noise": 0.1},
        {"size": draw.size(800), **draw.direction(draw.few()), "minority": 0.05},
    ]


def _third(draw: _Draw) -> list[dict]:
    return [
        {"size": draw.size(1500), "classes": draw.few()},
        {"size": draw.size(400), "noise": 0.05, "classes": draw.some()},
        {"size": draw.size(), "noise": 0.2, "flips": "next", "classes": draw.some()},
        {"size": draw.size(1500), "attribute": draw.attribute, "minority": 0.01, "classes": draw.few()},
        {"size": draw.size(1500), **draw.direction(draw.some()), "minority": 0.1, "tail": 10.0},
        {"size": draw.size(), **draw.direction(draw.few())},
        {"size": draw.size(800), **draw.direction(min(draw.classes, 10)), "minority": 0.05},
        {"size": draw.size(), "classes": draw.some()},
    ]


def _fourth(draw: _Draw) -> list[dict]:
    """Labels of one class given to another; last, so that the other cases are what they were before these were added."""
    return [
        {"size": draw.size(400), "noise": 0.15, "flips": "sided", "classes": draw.few()},
        {"size": draw.size(400), "noise": 0.3, "flips": "sided", "classes": draw.few()},
    ]


# Cases drawn at random: the limits were set while looking at the fixed ones, and these they have not seen.
KINDS = {
    "clean": 0.26,
    "noise": 0.2,
    "tail": 0.1,
    "noise+tail": 0.04,
    "shortcut": 0.26,
    "shortcut+noise": 0.08,
    "shortcut+tail": 0.06,
}
FRESH_SIZES = (400, 800, 1500, 2500)
BYSTANDER = 0.25  # of the cases without a shortcut have an attribute that goes with no class
SEED_STEP = 100_000  # seeds of fresh cases lie above, those of fixed ones below


def fresh_plans(pool: str, count: int, seed: int = 0) -> list[Plan]:
    """`count` plans of a pool; all but its name follows from the seed."""
    generator = np.random.default_rng([seed, 5, *pool.encode()])
    return [Plan(pool, seed=(seed + 1) * SEED_STEP + number, **_drawn(pool, generator)) for number in range(count)]


def _drawn(pool: str, generator: np.random.Generator) -> dict[str, Any]:
    facts = FACTS.get(pool, PoolFacts(0, "cluster"))
    kind = str(generator.choice(list(KINDS), p=list(KINDS.values())))
    classes = 0
    if facts.classes > 2:
        classes = min(int(generator.choice([2, 2, 3, 4, 6, 10])), facts.classes)
    drawn: dict[str, Any] = {"size": int(generator.choice(FRESH_SIZES)), "classes": classes, "merged": pool in MERGED}
    if "shortcut" in kind or generator.random() < BYSTANDER:
        drawn |= _attribute(facts, classes, generator)
    if "shortcut" in kind:
        drawn["minority"] = float(generator.choice([0.02, 0.05, 0.05, 0.1]))
    if "noise" in kind:
        highest = 0.3 if 2 in (classes, facts.classes) else 0.4
        drawn["noise"] = min(float(generator.choice([0.05, 0.1, 0.2, 0.2, 0.3, 0.4])), highest)
        drawn["flips"] = str(generator.choice(["symmetric", "symmetric", "symmetric", "next", "sided"]))
    if "tail" in kind:
        drawn["tail"] = float(generator.choice([10.0, 30.0, 100.0]))
    return drawn


def _attribute(facts: PoolFacts, classes: int, generator: np.random.Generator) -> dict[str, Any]:
    """The pool's own attribute in two of three cases, else a direction."""
    if generator.random() < 0.65:
        return {"attribute": facts.attribute}
    values = min(int(generator.choice([2, 2, 3, 4])), max(classes or facts.classes, 2))
    return {"attribute": "direction", "values": values, "strength": float(generator.choice([3.0, 5.0, 8.0]))}
