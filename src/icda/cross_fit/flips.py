"""Labels that give way to what a network says that has not seen them."""

from __future__ import annotations

import torch
from torch import Tensor


def flip_probability(logits: Tensor) -> Tensor:
    """(p_max - 1/C) C / (C - 1) of each row (N,): 0 for a uniform answer, 1 for a certain one.

    Reference: Pezeshki et al., "Discovering environments with XRM", ICML 2024.
    """
    num_classes = logits.shape[1]
    sure = torch.softmax(logits, 1).max(1).values
    return ((sure - 1 / num_classes) * num_classes / (num_classes - 1)).clamp(0, 1)


def flip_labels(labels: Tensor, logits: Tensor, uniform: Tensor) -> Tensor:
    """The labels (N,), each replaced by the held-out answer where a uniform draw (N,) lies below its flip probability."""
    return torch.where(uniform < flip_probability(logits), logits.argmax(1), labels)
