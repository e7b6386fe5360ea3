"""Cases drawn at random by a seed: the limits were set while looking at the fixed ones, and these they have not seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from icda_bench.studies.verdicts.cases import Plan
from icda_bench.studies.verdicts.plans import FACTS, MERGED, PoolFacts

KINDS = {
    "clean": 0.26,
    "noise": 0.2,
    "tail": 0.1,
    "noise+tail": 0.04,
    "shortcut": 0.26,
    "shortcut+noise": 0.08,
    "shortcut+tail": 0.06,
}
SIZES = (400, 800, 1500, 2500)
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
    drawn: dict[str, Any] = {"size": int(generator.choice(SIZES)), "classes": classes, "merged": pool in MERGED}
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
