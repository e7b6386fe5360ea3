"""Distances: how far class means and samples lie from the boundaries between classes."""

from __future__ import annotations

import torch
from torch import Tensor


def boundary_distances(mean: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Signed distance (C, C) of the mean of class row from its boundary with class column; the diagonal is zero.

    Entry [c, y] is ((w_c - w_y).mu_c + b_c - b_y) / |w_c - w_y|: above zero where the mean lies on its own side. Two
    classes with the same weights have no boundary, and no distance (NaN).

    Reference: section 5 of arXiv 2304.13431; there the bias is left out and the sign is taken to be positive.

    >>> boundary_distances(torch.tensor([[3.0], [-1.0]]), torch.tensor([[2.0], [-2.0]])).tolist()
    [[0.0, 3.0], [1.0, 0.0]]
    """
    scores = mean @ weight.T
    if bias is not None:
        scores = scores + bias
    gaps = scores.diagonal()[:, None] - scores
    return _divide(gaps, torch.cdist(weight, weight)).fill_diagonal_(0)


def sample_distances(logits: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Signed distance (N,) of each feature from the nearest boundary of its class: min_c (z_y - z_c) / |w_y - w_c|.

    A margin in units of the feature space, which larger weights alone do not enlarge. Below zero where the prediction
    is wrong; then it is the distance to the boundary farthest behind.

    >>> sample_distances(torch.tensor([[4.0, 0.0]]), torch.tensor([0]), torch.tensor([[2.0], [0.0]])).tolist()
    [2.0]
    """
    gaps = logits.gather(1, targets[:, None]) - logits
    distances = _divide(gaps, torch.cdist(weight, weight)[targets])
    return distances.scatter(1, targets[:, None], torch.inf).nan_to_num(nan=torch.inf, posinf=torch.inf).amin(1)


def _divide(gaps: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(lengths > 0, gaps / lengths.clamp(min=torch.finfo(lengths.dtype).tiny), torch.nan)
