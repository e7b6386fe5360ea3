import pytest
import torch

from icda.meta.moments import normalised, symmetrised, with_values
from icda.statistics import Moments


def make_moments(kind):
    generator = torch.Generator().manual_seed(0)
    mean, variances, scale = torch.rand(3, 3, 4, generator=generator, dtype=torch.float64)
    rows = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    scatter = rows.mT @ rows if kind == "full" else variances
    return Moments(kind, mean, scatter, scale[:, 0], rows if kind == "low_rank" else None)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_covariances_are_scatter_times_scale(kind):
    moments = make_moments(kind)
    for scatter, scale, found in zip(moments.scatter, moments.scale, moments.covariance(), strict=True):
        assert torch.equal(found, scatter * scale)


def test_low_rank_covariance_is_factor_squared_plus_diagonal():
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    scatter = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    scale = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    found = Moments("low_rank", torch.zeros(3, 4), scatter, scale, factor).covariance()
    for c in range(3):
        for a in range(4):
            for b in range(4):
                expected = sum(factor[c, r, a] * factor[c, r, b] for r in range(2)) + (scatter[c, a] if a == b else 0)
                torch.testing.assert_close(found[c, a, b], scale[c] * expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_normalised_parts_make_the_same_moments_again(kind):
    moments = make_moments(kind)
    again = with_values(moments, normalised(moments))
    assert torch.equal(again.mean, moments.mean)
    torch.testing.assert_close(again.covariance(), moments.covariance(), rtol=0, atol=1e-14)
    assert (again.scale == 1).all()


def test_symmetrised_covariances_are_symmetric_and_read_the_same():
    moments = make_moments("full")
    skew = torch.randn(3, 4, 4, dtype=torch.float64)
    lopsided = Moments("full", moments.mean, moments.scatter + skew - skew.mT, moments.scale)
    found = symmetrised(lopsided)
    assert torch.equal(found.scatter, found.scatter.mT)
    torch.testing.assert_close(found.covariance(), moments.covariance(), rtol=0, atol=1e-14)
    for kind in ("diagonal", "low_rank"):
        assert symmetrised(make_moments(kind)).covariance().equal(make_moments(kind).covariance())


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_moments_in_another_precision_have_the_same_values(kind):
    moments = make_moments(kind)
    assert moments.to(torch.float64) is moments
    single = moments.to(torch.float32)
    for found, expected in zip(normalised(single), normalised(moments), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
