"""A covariance as its strongest directions and exact variances."""

from __future__ import annotations

import torch
from torch import Tensor


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
    if rows.shape[-2] > rows.shape[-1]:  # many samples, few features: decompose the smaller of the two Gram matrices
        values, vectors = torch.linalg.eigh(rows.mT @ rows)
        return values[..., -rank:, None].clamp(min=0).sqrt() * vectors[..., -rank:].mT
    _, rotation = torch.linalg.eigh(rows @ rows.mT)  # ascending: the strongest directions come last
    return rotation[..., -rank:].mT @ rows
