"""Mapped variances of a run: over its epochs, and of the trained network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from icda.explain.passes import Pass
from icda.functional.mapped_variance import mean_mapped_variances

OWN, UNRELATED = "mapped_variance_own", "mapped_variance_unrelated"  # as `LossMethod` logs them


def logged_variances(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What a run logged of its running statistics: epochs, own and unrelated; empty lists where it logged nothing.

    Running statistics are those the loss reads, gathered over all epochs so far, so that they hold the drift of the
    features too.

    >>> logged_variances([{"epoch": 0}, {"epoch": 1, OWN: 2.0}])
    {'epochs': [1], 'own': [2.0], 'unrelated': []}
    """
    logged = [record for record in history if OWN in record]
    return {
        "epochs": [record["epoch"] for record in logged],
        "own": [record[OWN] for record in logged],
        "unrelated": [record[UNRELATED] for record in logged if UNRELATED in record],
    }


def variance_figures(seen: Pass, history: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Logged mapped variances, and under `trained` those of the trained network's own features.

    Where a run logged none (cross entropy keeps no statistics) the lists hold the trained network's figures alone.
    """
    trained = mean_mapped_variances(seen.weight, seen.statistics().moments())
    figures: dict[str, Any] = logged_variances(history)
    if not figures["epochs"]:
        last = history[-1]["epoch"] if history else 0
        unrelated = [] if trained.unrelated is None else [trained.unrelated]
        figures = {"epochs": [last], "own": [trained.own], "unrelated": unrelated}
    return figures | {"trained": trained._asdict()}
