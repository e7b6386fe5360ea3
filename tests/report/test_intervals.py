import math

import numpy as np
import pytest

from icda.report.intervals import bootstrap_mean, wilson


@pytest.mark.parametrize(("right", "samples"), [(0, 10), (3, 10), (10, 10), (812, 1000)])
def test_wilsons_ends_are_the_shares_that_would_just_be_rejected(right: int, samples: int) -> None:
    low, high = wilson(right, samples)
    observed = right / samples
    for end in (low, high):
        if 0 < end < 1:
            deviation = math.sqrt(end * (1 - end) / samples)
            assert abs(observed - end) / deviation == pytest.approx(1.959964, rel=1e-6)
    assert 0 <= low <= observed <= high <= 1


def test_no_sample_tells_nothing() -> None:
    assert wilson(0, 0) is None
    assert bootstrap_mean([], []) is None
    assert bootstrap_mean([0.5], [0]) is None
    assert bootstrap_mean([0.5], [1, 2]) is None


def test_the_bootstrap_agrees_with_the_normal_law_for_large_classes() -> None:
    shares, samples = [0.9, 0.5, 0.7], [4000, 2000, 3000]
    error = math.sqrt(sum(p * (1 - p) / n for p, n in zip(shares, samples, strict=True))) / 3
    low, high = bootstrap_mean(shares, samples)
    assert low == pytest.approx(np.mean(shares) - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(np.mean(shares) + 1.96 * error, abs=0.15 * error)
    assert bootstrap_mean(shares, samples) == (low, high)
