import torch

from icda.statistics import Moments


def test_diagonal_covariance_is_scatter_times_scale() -> None:
    scatter, scale = torch.rand(3, 4), torch.tensor([1.0, 0.5, 0.0])
    found = Moments("diagonal", torch.zeros(3, 4), scatter, scale).covariance()
    for c in range(3):
        for a in range(4):
            assert found[c, a] == scatter[c, a] * scale[c]


def test_full_covariance_is_scatter_times_scale() -> None:
    scatter, scale = torch.rand(3, 4, 4), torch.tensor([1.0, 0.5, 0.0])
    found = Moments("full", torch.zeros(3, 4), scatter, scale).covariance()
    for c in range(3):
        assert torch.equal(found[c], scatter[c] * scale[c])


def test_low_rank_covariance_is_factor_squared_plus_diagonal() -> None:
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
