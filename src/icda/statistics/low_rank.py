"""A covariance as its strongest directions and exact variances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icda.functional.grouping import LabelGroups
from icda.ranks import all_gather_rows

if TYPE_CHECKING:
    from icda.statistics import ClassStatistics


def compress(rows: Tensor, rank: int) -> Tensor:
    """The (rank, A) factor F whose F^T F is nearest to rows^T rows; equal when `rank` suffices. Batched over leading dims.

    Rotating by the eigenvectors of the small Gram matrix keeps F^T F exact to rounding, without dividing by singular
    values that may be zero.

    >>> rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> factor = compress(rows, rank=2)
    >>> torch.allclose(factor.mT @ factor, rows.mT @ rows)
    True
    """
    missing = rank - rows.shape[-2]
    if missing > 0:
        rows = torch.cat([rows, rows.new_zeros(*rows.shape[:-2], missing, rows.shape[-1])], -2)
    unit = _power_of_two(rows)  # rows of 1e-25 would have a Gram matrix of zeros, rows of 1e20 an infinite one
    rows = rows / unit
    if rows.shape[-2] > rows.shape[-1]:  # many samples, few features: decompose the smaller of the two Gram matrices
        values, vectors = _eigh(rows.mT @ rows)
        return values[..., -rank:, None].clamp(min=0).sqrt() * vectors[..., -rank:].mT * unit
    _, rotation = _eigh(rows @ rows.mT)  # ascending: the strongest directions come last
    return rotation[..., -rank:].mT @ rows * unit


def _power_of_two(rows: Tensor) -> Tensor:
    """The power of two next to the largest number, by which rows can be divided without rounding."""
    largest = rows.abs().amax((-2, -1), keepdim=True)
    unit = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent)
    return torch.where((largest > 0) & torch.isfinite(unit), unit, 1)


def _eigh(gram: Tensor) -> tuple[Tensor, Tensor]:
    """In double precision where single does not converge, which was seen for Gram matrices of equal rows."""
    try:
        values, vectors = torch.linalg.eigh(gram)
        return values, vectors
    except torch.linalg.LinAlgError:
        if not torch.isfinite(gram).all():  # a caller that looks at the result refuses it
            return gram[..., 0] * torch.nan, gram * torch.nan
        values, vectors = torch.linalg.eigh(gram.double())
        return values.to(gram), vectors.to(gram)


def fold_factor(
    statistics: ClassStatistics,
    groups: LabelGroups,
    rows: Tensor,
    residuals: Tensor,
    spread: Tensor,
    kept: Tensor,
    in_place: bool,
) -> None:
    """Fold a batch, that of all ranks, into the strongest directions of the classes `rows`."""
    assert statistics.factor is not None
    everyone = LabelGroups.of(all_gather_rows(groups.labels).cpu(), groups.number)
    padded = everyone.padded(all_gather_rows(residuals))
    before = statistics.factor[rows] * kept.to(spread).sqrt()[:, None, None]
    statistics.factor = statistics.factor if in_place else statistics.factor.clone()
    statistics.factor[rows] = compress(torch.cat([before, padded, spread[:, None]], 1), statistics.rank)
