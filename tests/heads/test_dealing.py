"""Draws by place: the same however rows are cut, and even."""

import numpy as np
import pytest

from icda.heads import dealing
from icda.heads.dealing import deal_folds, draw_rows, scrambled


def make_codes(count=203):
    return np.minimum(np.random.default_rng(0).integers(0, 5, count), 3)


@pytest.mark.parametrize("cuts", [[50], [1, 2, 150], list(range(1, 203))])
def test_a_fold_does_not_depend_on_how_rows_are_cut(cuts):
    codes = make_codes()
    whole = deal_folds(codes, np.zeros(4, dtype=np.int64), 5, seed=3)
    before, parts = np.zeros(4, dtype=np.int64), []
    for part in np.split(codes, cuts):
        parts.append(deal_folds(part, before, 5, seed=3))
        before = before + np.bincount(part, minlength=4)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("folds", [2, 5])
def test_every_class_is_spread_evenly_over_the_folds(folds):
    codes = make_codes()
    dealt = deal_folds(codes, np.zeros(4, dtype=np.int64), folds, seed=0)
    for label in range(4):
        sizes = np.bincount(dealt[codes == label], minlength=folds)
        assert sizes.max() - sizes.min() <= 1


def test_another_seed_deals_other_folds():
    codes = make_codes()
    dealt = [deal_folds(codes, np.zeros(4, dtype=np.int64), 5, seed) for seed in (0, 1)]
    assert 0.1 < (dealt[0] == dealt[1]).mean() < 0.3


def test_rows_are_drawn_evenly_and_in_order(monkeypatch):
    rows = draw_rows(10_000, 1000, seed=1)
    assert len(np.unique(rows)) == 1000
    assert (np.diff(rows) > 0).all()
    assert np.bincount(rows // 1000, minlength=10).min() > 60
    monkeypatch.setattr(dealing, "CHUNK", 777)
    np.testing.assert_array_equal(draw_rows(10_000, 1000, seed=1), rows)


def test_scrambled_numbers_are_all_different():
    assert len(np.unique(scrambled(np.arange(100_000), seed=5))) == 100_000
