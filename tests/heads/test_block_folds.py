"""Heads of folds fitted to blocks are those that each fold's rows give by themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from icda.engines import Here
from icda.heads.balance import rebalance
from icda.heads.block_folds import (
    Contrast,
    Dealing,
    FoldHeads,
    FoldQuestion,
    balanced_masses,
    count_cells,
    fit_fold_heads,
)
from icda.heads.blocks import Scaling, count_labels, merge_counts
from icda.heads.dealing import Place, deal_folds, place_blocks
from icda.heads.descent import Metric
from icda.heads.problem import LossSettings
from icda.heads.problem import Problem
from icda.heads.solver import fit_head

FOLDS, SEED, DECAY = 3, 4, 0.02


@dataclass(frozen=True)
class InMemory:
    features: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    def labels(self) -> np.ndarray:
        return self.targets

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.targets


def make(classes: int, parts: int) -> tuple[torch.Tensor, torch.Tensor, list[Place], Dealing]:
    generator = np.random.default_rng(classes)
    codes = np.minimum(generator.integers(0, classes + 2, 240), classes - 1)
    features = generator.normal(size=(240, 5)) + 0.8 * codes[:, None]
    blocks = [
        InMemory(*pair) for pair in zip(np.array_split(features, parts), np.array_split(codes, parts), strict=True)
    ]
    counted = [count_labels(block) for block in blocks]
    names = merge_counts(counted)[0]
    scaling = Scaling(torch.from_numpy(features.mean(0)), torch.from_numpy(features.std(0)))
    scaled = torch.from_numpy((features - features.mean(0)) / features.std(0))
    places = list(place_blocks(blocks, counted, names))
    return scaled, torch.from_numpy(codes), places, Dealing(names, scaling, FOLDS, SEED, torch.float64)


def fit(places: list[Place], dealing: Dealing, contrast: Contrast | None, metric: Metric | None = None) -> FoldHeads:
    masses = balanced_masses(sum(count_cells(place, dealing, contrast) for place in places))  # type: ignore[arg-type]
    question = FoldQuestion(dealing, masses, contrast, torch.empty(0), torch.empty(0))
    return fit_fold_heads(places, Here(), question, DECAY, 2000, 1e-10, metric, lambda: None)


def naive(
    scaled: torch.Tensor, codes: torch.Tensor, attributes: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each fold's head by itself, with every (class, attribute) of all rows weighing the same."""
    classes = int(codes.max()) + 1
    dealt = torch.from_numpy(deal_folds(codes.numpy(), np.zeros(classes, dtype=np.int64), FOLDS, SEED))
    problem = rebalance(replace(Problem.of(scaled, codes, classes, C=1.0), decay=DECAY), attributes)
    heads = [fit_head(problem.rows(dealt != fold), LossSettings("ce"), 2000, 1e-10) for fold in range(FOLDS)]
    return [(head.weight, head.bias) for head in heads]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("parts", [1, 7])
def test_each_head_is_the_one_of_the_rows_outside_its_fold(classes: int, parts: int) -> None:
    scaled, codes, places, dealing = make(classes, parts)
    found = fit(places, dealing, None)
    for fold, (weight, bias) in enumerate(naive(scaled, codes, torch.zeros_like(codes))):
        torch.testing.assert_close(found.weight[fold], weight, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.bias[fold], bias, atol=1e-6, rtol=0)


def test_a_metric_changes_the_way_and_not_the_heads() -> None:
    scaled, _, places, dealing = make(4, 3)
    plain, steered = fit(places, dealing, None), fit(places, dealing, None, Metric.of(scaled, DECAY, 0.25))
    torch.testing.assert_close(plain.weight, steered.weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("classes", [2, 4])
def test_robust_heads_balance_what_the_contrast_says_of_the_rows(classes: int) -> None:
    scaled, codes, places, dealing = make(classes, 4)
    biased = fit(places, dealing, None)
    contrast = Contrast(biased)
    dealt = torch.from_numpy(deal_folds(codes.numpy(), np.zeros(classes, dtype=np.int64), FOLDS, SEED))
    logits = torch.stack([scaled[i] @ biased.weight[k].T + biased.bias[k] for i, k in enumerate(dealt)])
    torch.testing.assert_close(biased.held_out(scaled, dealt), logits)
    hurt = logits.argmax(1) != codes
    assert 0 < int(hurt.sum()) < len(codes)
    found = fit(places, dealing, contrast)
    for fold, (weight, _) in enumerate(naive(scaled, codes, hurt.long())):
        torch.testing.assert_close(found.weight[fold], weight, atol=1e-6, rtol=0)


def test_a_tie_is_the_biased_margin_less_half_the_robust_one() -> None:
    scaled, codes, places, dealing = make(4, 2)
    biased = fit(places, dealing, None)
    robust = FoldHeads(0.5 * biased.weight, 0.5 * biased.bias)
    dealt = torch.from_numpy(deal_folds(codes.numpy(), np.zeros(4, dtype=np.int64), FOLDS, SEED))
    alone = Contrast(biased).ties(scaled, codes, dealt)
    both = Contrast(biased, 2.0, robust, 4.0).ties(scaled, codes, dealt)
    torch.testing.assert_close(both, alone / 2 - 0.5 * (0.5 * alone) / 4)
