"""How much weight decay a head gets, by what heads that have not seen the samples get right."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from icda.linear.cross_fit import cross_fitted_logits
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem

FACTORS = (1.0, 0.1, 0.01)  # of the decay a problem comes with
LEAST_GAIN = 0.005  # of balanced accuracy: for less, the stronger decay stays
MOST_NUMBERS = 3_000_000  # samples times features: above, fifteen heads would take too long, and the decay stays
MAX_ITER, TOL = 100, 1e-3


def choose_decay(problem: Problem, settings: LossSettings, strata: Tensor, seed: int = 0) -> Problem:
    """The problem with the decay of `FACTORS` that has the best cross-fitted accuracy, every stratum (N,) counting alike.

    Strata are classes, or classes and what a shortcut says. On data of few features the default decay, made for
    embeddings, keeps heads from telling rare classes; on noisy data a weaker one memorises the wrong labels.
    """
    if problem.features.shape[0] * problem.features.shape[1] > MOST_NUMBERS:
        return problem
    chosen, best = problem, -1.0
    for factor in FACTORS:
        tried = replace(problem, decay=factor * problem.decay)
        logits = cross_fitted_logits(tried, settings, strata, seed=seed, max_iter=MAX_ITER, tol=TOL)
        found = balanced_share(logits.argmax(1) == problem.targets, strata)
        if found > best + (LEAST_GAIN if best >= 0 else 0):
            chosen, best = tried, found
    return chosen


def balanced_share(right: Tensor, strata: Tensor) -> float:
    """The mean over strata of the share that is right.

    >>> balanced_share(torch.tensor([True, True, True, False]), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    counts = torch.bincount(strata)
    present = counts > 0
    return float((torch.bincount(strata, right.double())[present] / counts[present]).mean())
