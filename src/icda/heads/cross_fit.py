"""Predictions of heads that have not seen the sample they predict."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.functional.strength import Strength
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import LinearHead, fit_folds, fit_head
from icda.heads.threads import threads_for


def cross_fitted_logits(
    problem: Problem,
    settings: LossSettings,
    strata: Tensor,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    max_iter: int = 100,
    tol: float = 1e-3,
    *,
    together: bool = False,
) -> Tensor:
    """Out-of-fold logits (N, C), averaged over `repeats` ways of cutting the data into `folds`, stratified by `strata`.

    A head that has memorised its training data sees no spurious tie in it; one that has not seen a sample does. With
    `together` all heads are fitted side by side, which is faster and has the same optimum; where `tol` is loose, they stop
    at another place near it. The audit's verdicts do without: their limits were set with heads fitted one by one.
    """
    inside = torch.cat([outside_folds(strata, folds, seed + repeat) for repeat in range(repeats)])
    with threads_for(problem.products):
        if together:
            heads = fit_folds(problem, settings, inside, max_iter, tol)
        else:
            heads = [fit_head(problem.rows(mask), settings, max_iter, tol) for mask in inside]
        return held_out_logits(problem, heads, inside) / repeats


def outside_folds(strata: Tensor, folds: int, seed: int) -> Tensor:
    """Masks (folds, N): the samples that the head of each fold is fitted to, all but the fold's own."""
    fold = stratified_folds(strata, folds, seed)
    return torch.arange(folds)[:, None] != fold


def held_out_logits(problem: Problem, heads: Sequence[LinearHead], inside: Tensor) -> Tensor:
    """The sum (N, C) over heads of their logits for samples that they were not fitted to."""
    total = torch.zeros(len(problem.targets), problem.num_classes, dtype=problem.features.dtype)
    for head, mask in zip(heads, inside, strict=True):
        total[~mask] += head.logits(problem.features[~mask])
    return total


def stratified_folds(strata: Tensor, folds: int, seed: int) -> Tensor:
    """A fold number for every sample; each stratum is spread evenly over the folds.

    >>> torch.bincount(stratified_folds(torch.tensor([0] * 6 + [1] * 4), folds=2, seed=0)).tolist()
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
