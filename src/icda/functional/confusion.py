"""Counting which class was taken for which."""

from __future__ import annotations

import torch
from torch import Tensor


def count_confusions(predictions: Tensor, targets: Tensor, num_classes: int, weights: Tensor | None = None) -> Tensor:
    """How often each class (row) was taken for each class (column), (C, C); `weights` (N,) let samples count differently.

    >>> count_confusions(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    pairs = targets * num_classes + predictions
    return torch.bincount(pairs, weights, minlength=num_classes**2).view(num_classes, num_classes)
