import numpy as np
import pytest
import torch

from icda.statistics.low_rank import compress


def rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("count", "width", "rank"), [(9, 4, 4), (3, 6, 3), (3, 6, 5), (1, 4, 2), (7, 3, 3)])
def test_product_is_kept_when_the_rank_suffices(count: int, width: int, rank: int) -> None:
    given = rows(count, count, width)
    factor = compress(given, rank)
    assert factor.shape == (rank, width)
    torch.testing.assert_close(factor.T @ factor, given.T @ given, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_product_is_the_nearest_of_its_rank(rank: int) -> None:
    given = rows(rank, 12, 6)
    factor = compress(given, rank)
    _, values, directions = np.linalg.svd(given.numpy())
    kept = directions[:rank]
    np.testing.assert_allclose(factor.T @ factor, kept.T @ np.diag(values[:rank] ** 2) @ kept, atol=1e-10)


def test_variance_is_never_overstated() -> None:
    for seed in range(20):
        given = rows(seed, 10, 5)
        assert (compress(given, 2).square().sum(0) <= given.square().sum(0) + 1e-12).all()


def test_rows_of_zeros_give_a_factor_of_zeros() -> None:
    assert torch.equal(compress(torch.zeros(5, 4), 3), torch.zeros(3, 4))


def test_leading_dimensions_are_a_batch() -> None:
    given = rows(0, 3, 7, 4)
    factor = compress(given, 2)
    for part, alone in zip(factor, given, strict=True):
        single = compress(alone, 2)
        torch.testing.assert_close(part.T @ part, single.T @ single, rtol=0, atol=1e-12)
