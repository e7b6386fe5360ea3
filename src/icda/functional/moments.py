"""Class means and covariances as the losses read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

CovarianceKind = Literal["full", "diagonal", "low_rank"]


@dataclass(frozen=True)
class Moments:
    """mu_c and Sigma_c of every class, Sigma kept as `scatter` times `scale` so that reading it copies nothing.

    `mean` is (C, A), `scale` (C,); `scatter` is (C, A, A) for the `kind` "full" and (C, A) for "diagonal" and "low_rank".
    In the latter a `factor` F (C, r, A) is added: Sigma_c = scale_c (F_c^T F_c + diag(scatter_c)).
    """

    kind: CovarianceKind
    mean: Tensor
    scatter: Tensor
    scale: Tensor
    factor: Tensor | None = None

    def covariance(self) -> Tensor:
        """Sigma: (C, A) when diagonal, else (C, A, A).

        >>> Moments("diagonal", torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([1.0, 0.5])).covariance()
        tensor([[1.0000, 1.0000, 1.0000],
                [0.5000, 0.5000, 0.5000]])
        """
        if self.kind == "diagonal":
            return self.scatter * self.scale[:, None]
        if self.kind == "full":
            return self.scatter * self.scale[:, None, None]
        assert self.factor is not None
        dense = self.factor.mT @ self.factor + torch.diag_embed(self.scatter)
        return dense * self.scale[:, None, None]

    def to(self, dtype: torch.dtype) -> Moments:
        """The same in another precision; itself if it has that already."""
        if self.mean.dtype == dtype:
            return self
        factor = None if self.factor is None else self.factor.to(dtype)
        return Moments(self.kind, self.mean.to(dtype), self.scatter.to(dtype), self.scale.to(dtype), factor)
