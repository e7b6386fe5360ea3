"""Direct strengths: how strongly a sample is tied to each wrong class, read off angles."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

EPS = 1e-12


class Strength(NamedTuple):
    """`per_class` alpha_{i,c} (N, C), zero at the target, and `per_sample` alpha_i (N,), both in [0, 1]."""

    per_class: Tensor
    per_sample: Tensor


@torch.no_grad()
def direct_strength(features: Tensor, targets: Tensor, weight: Tensor, products: Tensor | None = None) -> Strength:
    """The strengths of section 4.1: alpha_{i,c} = max(cos(h_i, w_c), 0) and alpha_i = (1 - cos(h_i, w_y)) / 2.

    The cosine leaves the bias out and is 0 for a zero feature or weight. Strengths carry no gradient (mathematics 4.1).

    Reference: arXiv 2304.13431, section 4.1.

    Args:
        features: h (N, A), the head's input.
        targets: Labels (N,).
        weight: The head's weight (C, A).
        products: <h_i, w_c> (N, C), that is logits less the bias, where they are known already.

    Returns:
        `per_class` (N, C), zero at the target, and `per_sample` (N,).

    >>> strength = direct_strength(torch.tensor([[1.0, 1.0]]), torch.tensor([0]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    >>> strength.per_class.round(decimals=3), strength.per_sample.round(decimals=3)
    (tensor([[0.0000, 0.7070]]), tensor([0.1460]))
    """
    if products is None:
        products = features @ weight.T
    norms = features.norm(dim=1)[:, None] * weight.norm(dim=1)[None, :]
    cosine = (products / (norms + EPS)).clamp(-1, 1)
    target_cosine = cosine.gather(1, targets[:, None])
    per_class = cosine.clamp(min=0).scatter(1, targets[:, None], 0)
    return Strength(per_class, (1 - target_cosine[:, 0]) / 2)
