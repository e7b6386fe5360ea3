"""Folds: a coin's, as they have always been, and those that split every class evenly."""

from __future__ import annotations

import pytest
import torch

from icda.cross_fit import draw_folds, stratified_folds
from icda.data.generators import generator_for

TARGETS = torch.tensor([0] * 41 + [1] * 7 + [2] * 2 + [4])[torch.randperm(51, generator=generator_for(1))]


def test_the_coin_of_the_first_repeat_is_the_one_earlier_runs_threw() -> None:
    expected = torch.randint(4, (30,), generator=generator_for(5, "folds", 4))
    assert torch.equal(draw_folds(30, 4, seed=5), expected)
    assert not torch.equal(draw_folds(30, 4, seed=5, repeat=1), expected)


@pytest.mark.parametrize("folds", [2, 3, 4])
def test_every_class_and_the_whole_are_split_evenly(folds: int) -> None:
    for seed in range(5):
        found = stratified_folds(TARGETS, folds, seed)
        for samples in [range(51), *([i for i in range(51) if TARGETS[i] == c] for c in (0, 1, 2, 4))]:
            sizes = [sum(int(found[i]) == k for i in samples) for k in range(folds)]
            assert max(sizes) - min(sizes) <= 1


def test_both_twins_learn_a_class_of_two_samples_where_a_coin_may_leave_one_without() -> None:
    pair = (TARGETS == 2).nonzero().flatten()
    by_coin = {len(set(draw_folds(51, 2, seed)[pair].tolist())) for seed in range(20)}
    evenly = {len(set(stratified_folds(TARGETS, 2, seed)[pair].tolist())) for seed in range(20)}
    assert by_coin == {1, 2}
    assert evenly == {2}


def test_the_draw_depends_on_seed_and_repeat_and_which_samples_go_where_is_random() -> None:
    first = stratified_folds(TARGETS, 2, seed=0)
    assert torch.equal(first, stratified_folds(TARGETS, 2, seed=0))
    assert not torch.equal(first, stratified_folds(TARGETS, 2, seed=1))
    assert not torch.equal(first, stratified_folds(TARGETS, 2, seed=0, repeat=1))
    single = int((TARGETS == 4).nonzero())  # a class of one sample goes to each of the folds now and then
    assert {int(stratified_folds(TARGETS, 2, seed)[single]) for seed in range(20)} == {0, 1}


def test_a_single_fold_is_refused() -> None:
    for draw in (lambda: draw_folds(5, 1, 0), lambda: stratified_folds(TARGETS, 1, 0)):
        with pytest.raises(ValueError, match="needs 2 folds or more, got 1"):
            draw()
