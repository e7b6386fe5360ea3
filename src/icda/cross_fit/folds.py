"""Which part of the samples each network does not learn from."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.errors import InputError


def draw_folds(num_samples: int, folds: int, seed: int, repeat: int = 0) -> Tensor:
    """A fold for each sample (N,), by a die with as many sides as there are folds; each repeat throws again."""
    _check(folds)
    generator = generator_for(seed, "folds", folds) if repeat == 0 else generator_for(seed, "folds", folds, repeat)
    return torch.randint(folds, (num_samples,), generator=generator)


def stratified_folds(targets: Tensor, folds: int, seed: int, repeat: int = 0) -> Tensor:
    """A fold for each sample (N,), so that each class, and all samples, are split evenly: sizes differ by one at most.

    The samples stand in a row, class after class and at random within a class; folds are dealt out along it in turn. With
    two folds and two samples of a class, each of the twins learns one of them.
    """
    _check(folds)
    generator = generator_for(seed, "stratified folds", folds, repeat)
    order = torch.randperm(len(targets), generator=generator)
    first = torch.randint(folds, (), generator=generator)  # else the first fold would always have the extra sample
    row = order[targets.cpu()[order].argsort(stable=True)]
    dealt = torch.empty(len(targets), dtype=torch.long)
    dealt[row] = (torch.arange(len(targets)) + first) % folds
    return dealt


def _check(folds: int) -> None:
    if folds < 2:
        raise InputError(f"cross-fitting needs 2 folds or more, got {folds}: a network is blind to its own fold alone.")
