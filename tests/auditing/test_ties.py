import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from icda.auditing.inputs import standardise
from icda.auditing.ties import _auroc, nearest_rows
from icda.heads.rows import BLOCK


def test_standardising_agrees_with_the_textbook_over_several_blocks():
    generator = np.random.default_rng(0)
    X = 3 * generator.normal(size=(BLOCK + 7, 3)) + 100
    X[:, 2] = 0.1
    wanted = (X[:, :2] - X[:, :2].mean(0)) / X[:, :2].std(0)
    scaled = standardise(X)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled[:, :2], wanted, atol=1e-5)
    assert not scaled[:, 2].any()


def test_large_half_precision_values_do_not_overflow():
    X = np.full((1000, 2), 60_000, dtype=np.float16)
    X[::2, 0] = 0
    scaled = standardise(X)
    np.testing.assert_allclose(scaled[:, 0], np.where(np.arange(1000) % 2, 1, -1))
    assert not scaled[:, 1].any()


def test_partners_are_the_nearest():
    generator = np.random.default_rng(0)
    wanted, offered = generator.normal(size=20), generator.normal(size=50)
    for value, found in zip(wanted, nearest_rows(wanted, offered, 1), strict=True):
        order = np.sort(offered)
        place = np.searchsorted(order, value)
        assert offered[found] in order[max(place - 1, 0) : place + 1]
    assert nearest_rows(wanted, offered[:2], 3).shape == (40,)


def test_the_bounds_are_those_of_hanley_and_mcneil():
    generator = np.random.default_rng(0)
    high, low = generator.normal(1, 1, 60), generator.normal(0, 1, 180)
    found = _auroc(high, low)
    area = roc_auc_score([1] * 60 + [0] * 180, np.r_[high, low])
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + 59 * (q1 - area**2) + 59 * (q2 - area**2)) / 3600
    assert found.auroc == pytest.approx(area)
    assert found.high - found.low == pytest.approx(2 * 1.96 * variance**0.5)
