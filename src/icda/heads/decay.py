"""How much weight decay a head gets, by what heads that have not seen the samples get right."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from icda.heads.cross_fit import held_out_logits, outside_folds
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import fit_folds

FACTORS = (1.0, 0.1, 0.01)  # of the decay a problem comes with
GROUP_SMOOTHING = 1.0  # where groups are given, the rarest has a handful of samples
LEAST_GAIN = 0.005  # of balanced accuracy: for less, or for less than its standard error, the stronger decay stays
MOST_NUMBERS = 3_000_000  # samples times features from which fifteen heads take too long
FOLDS, MAX_ITER, TOL = 5, 100, 1e-3


def choose_decay(
    problem: Problem, settings: LossSettings, strata: Tensor, seed: int = 0, smoothing: float = 0.0
) -> Problem:
    """The problem with the decay of `FACTORS` that has the best cross-fitted accuracy, every stratum (N,) counting alike.

    Strata are classes, or classes and what a shortcut says. On data of few features the default decay, made for
    embeddings, keeps heads from telling rare classes; on noisy data a weaker one memorises the wrong labels. `smoothing` is
    that of `is_better`.
    """
    chosen, best, heads = problem, None, None
    inside = outside_folds(strata, FOLDS, seed)
    for factor in FACTORS:
        tried = replace(problem, decay=factor * problem.decay)
        # From the head of the same fold, which has seen the same samples, with more decay: near, and nothing leaks.
        heads = fit_folds(tried, settings, inside, MAX_ITER, TOL, starts=heads)
        right = held_out_logits(problem, heads, inside).argmax(1) == problem.targets
        if best is None or is_better(right, best, strata, smoothing):
            chosen, best = tried, right
    return chosen


def is_better(right: Tensor, before: Tensor, strata: Tensor, smoothing: float = 0.0) -> bool:
    """Whether more is right than before, strata counting alike: by `LEAST_GAIN`, and by one standard error of the gain.

    With `smoothing`, each stratum counts as if so many more of its answers had changed, by luck: of three samples none may
    have, and yet they say nothing.

    >>> is_better(torch.tensor([True] * 4), torch.tensor([True, True, True, False]), torch.tensor([0, 0, 1, 1]))
    False
    """
    gains = right.double() - before.double()
    counts = torch.bincount(strata)
    present = counts > 0
    weights = 1 / (counts[present].double() * int(present.sum()))  # of one sample
    gain = weights * torch.bincount(strata, gains)[present]
    error = (weights.square() * (torch.bincount(strata, gains.square())[present] + smoothing)).sum().sqrt()
    return float(gain.sum()) > max(LEAST_GAIN, float(error))


def balanced_share(right: Tensor, strata: Tensor) -> float:
    """The mean over strata of the share that is right.

    >>> balanced_share(torch.tensor([True, True, True, False]), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    counts = torch.bincount(strata)
    present = counts > 0
    return float((torch.bincount(strata, right.double())[present] / counts[present]).mean())
