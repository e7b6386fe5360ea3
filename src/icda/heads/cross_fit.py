"""Predictions of heads that have not seen the sample they predict, and the weight decay that serves them best."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from icda.functional.strength import Strength
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import LinearHead, fit_folds
from icda.heads.threads import threads_for

FACTORS = (1.0, 0.1, 0.01)  # of the decay a problem comes with
GROUP_SMOOTHING = 1.0  # where groups are given, the rarest has a handful of samples
LEAST_GAIN = 0.005  # of balanced accuracy: for less, or for less than its standard error, the stronger decay stays
MOST_NUMBERS = 3_000_000  # samples times features from which fifteen heads take too long
FOLDS, MAX_ITER, TOL = 5, 100, 1e-3


def cross_fitted_logits(
    problem: Problem,
    settings: LossSettings,
    strata: Tensor,
    folds: int = 5,
    seed: int = 0,
    max_iter: int = 100,
    tol: float = 1e-3,
    *,
    together: bool = False,
) -> Tensor:
    """Out-of-fold logits (N, C), with the data cut into `folds`, stratified by `strata`.

    A head that has memorised its training data sees no spurious tie in it; one that has not seen a sample does. With
    `together` all heads are fitted side by side, which is faster and has the same optimum; where `tol` is loose, they stop
    at another place near it. The audit's verdicts do without: their limits were set with heads fitted one by one.
    """
    inside = outside_folds(strata, folds, seed)
    with threads_for(problem.products):
        heads = fit_folds(problem, settings, inside, max_iter, tol, together=together)
        return held_out_logits(problem, heads, inside)


def outside_folds(strata: Tensor, folds: int, seed: int) -> Tensor:
    """Masks (folds, N): the samples that the head of each fold is fitted to, all but the fold's own."""
    fold = folds_of_strata(strata, folds, seed)
    return torch.arange(folds)[:, None] != fold


def held_out_logits(problem: Problem, heads: Sequence[LinearHead], inside: Tensor) -> Tensor:
    """The sum (N, C) over heads of their logits for samples that they were not fitted to."""
    total = torch.zeros(len(problem.targets), problem.num_classes, dtype=problem.features.dtype)
    for head, mask in zip(heads, inside, strict=True):
        total[~mask] += head.logits(problem.features[~mask])
    return total


def folds_of_strata(strata: Tensor, folds: int, seed: int) -> Tensor:
    """A fold number for every sample; each stratum is spread evenly over the folds.

    >>> torch.bincount(folds_of_strata(torch.tensor([0] * 6 + [1] * 4), folds=2, seed=0)).tolist()
    [5, 5]
    """
    generator = torch.Generator().manual_seed(seed)
    fold = torch.empty_like(strata)
    offset = 0
    for label in torch.unique(strata).tolist():
        rows = (strata == label).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        fold[rows] = (torch.arange(len(rows)) + offset) % folds  # go on where the last stratum stopped
        offset += len(rows)
    return fold


def cross_fitted_strength(logits: Tensor, targets: Tensor) -> Strength:
    """Ours, not the paper's: alpha_{i,c} = p_c of a head that has not seen the sample, and alpha_i = 1 - p_y."""
    probabilities = torch.softmax(logits, 1)
    per_sample = 1 - probabilities.gather(1, targets[:, None])[:, 0]
    return Strength(probabilities.scatter(1, targets[:, None], 0), per_sample)


def belief(probabilities: Tensor, targets: Tensor) -> Tensor:
    """p_y / max_c p_c (N,): how far each label is believed.

    >>> belief(torch.tensor([[0.25, 0.75], [0.25, 0.75]]), torch.tensor([1, 0])).round(decimals=3).tolist()
    [1.0, 0.3330000042915344]
    """
    return probabilities.gather(1, targets[:, None])[:, 0] / probabilities.max(1).values


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
