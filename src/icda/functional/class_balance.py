"""Class weights by the effective number of samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def effective_number_weights(class_counts: Tensor, beta: float = 0.9999) -> Tensor:
    """v_c = (1 - B) / (1 - B^{n_c}), scaled to sum to C; B = 0 gives ones. A class without samples gets 0.

    Reference: Cui et al., "Class-balanced loss based on effective number of samples", CVPR 2019.

    >>> effective_number_weights(torch.tensor([100, 1]), beta=0.99).round(decimals=3)
    tensor([0.0310, 1.9690], dtype=torch.float64)
    """
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    if beta == 0:
        share = counts.clamp(max=1)
    else:  # 1 - B^n cancels for B close to one
        share = -torch.expm1(counts * math.log(beta))
    weights = torch.where(counts > 0, (1 - beta) / share, 0)
    return weights * len(counts) / weights.sum()
