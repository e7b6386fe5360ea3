"""`icda.audit`: from features and labels to an `Audit`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from icda.auditing.assessment import assess
from icda.auditing.imbalance import measure_imbalance
from icda.auditing.inputs import check_inputs, default_inverse_decay
from icda.auditing.label_noise import find_label_noise
from icda.auditing.recommendation import recommend
from icda.auditing.result import Audit
from icda.auditing.ties import class_costs, find_ties
from icda.errors import InputError
from icda.extras import require
from icda.signature import check_kinds

_KINDS = inspect.signature(lambda *, C=1.0, repeats=1, seed=0: None)  # C is None or a number


def audit(
    X: Any,
    y: Any,
    *,
    class_names: Sequence[object] | np.ndarray | None = None,
    sample_names: Sequence[object] | np.ndarray | None = None,
    C: float | None = None,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    use_cleanlab: bool = False,
) -> Audit:
    """Say which samples are tied to which wrong class, how strongly and at what cost, before any group label exists.

    `X` (N, A) are features of a frozen encoder, in memory or memory-mapped; `y` (N,) labels of any dtype. Linear heads are
    fitted to standardised features, each without the samples it is asked about. `class_names` stand in the order of the
    sorted labels, or are looked up by labels that are numbers; `sample_names` are ids, paths or texts shown beside ranks.
    `C` is the heads' inverse weight decay, by default 1000 / (N A); more `repeats` of the `folds` make ranks steadier and
    cost as many times the time. `use_cleanlab` marks label issues by cleanlab's rule instead of ours.

    >>> generator = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 100)
    >>> X = generator.normal(size=(200, 8)) + 2 * (y == "dog")[:, None]
    >>> y[:5] = "dog"                              # five cats are called dogs
    >>> found = audit(X, y)
    >>> sorted(found.label_ranking()[:5].tolist())
    [0, 1, 2, 3, 4]
    """
    start = time.perf_counter()
    _check_settings(C, repeats, seed, use_cleanlab)
    inputs = check_inputs(X, y, class_names, sample_names, folds)
    decay = default_inverse_decay(*inputs.features.shape) if C is None else C
    ties = find_ties(inputs.problem(decay), folds, repeats, seed)
    targets = inputs.targets.numpy()
    costs = class_costs(ties, targets, inputs.class_names)
    imbalance = measure_imbalance(np.bincount(targets), inputs.class_names)
    noise = find_label_noise(ties.probabilities, targets, use_cleanlab)
    assessment = assess(inputs.features, inputs.targets, len(inputs.class_names), seed)
    settings = {"C": decay, "folds": int(folds), "repeats": repeats, "seed": seed}
    return Audit(
        class_names=inputs.class_names,
        sample_names=inputs.sample_names,
        targets=targets,
        ties=ties,
        costs=costs,
        imbalance=imbalance,
        noise=noise,
        assessment=assessment,
        findings=recommend(assessment, imbalance, noise),
        notes=inputs.notes,
        settings=settings | dict(zip(("samples", "features"), inputs.features.shape, strict=True)),
        seconds=time.perf_counter() - start,
    )


def _check_settings(C: float | None, repeats: int, seed: int, use_cleanlab: bool) -> None:
    numbers = {"repeats": repeats, "seed": seed} | ({} if C is None else {"C": C})
    check_kinds(_KINDS, numbers, "audit")
    if C is not None and not C > 0:
        raise InputError(f"C must be positive, got {C}.")
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, got {repeats}.")
    if use_cleanlab:
        require("cleanlab", "audit", "cleanlab's label issues")  # missing? Then say so before any work
