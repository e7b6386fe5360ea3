"""Generalized cross entropy, the Lq loss."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.base import AdjustedLoss
from icda.statistics.checks import check_number


class GeneralizedCrossEntropyLoss(AdjustedLoss):
    """A loss that tolerates wrong labels, (1 - p_y^q) / q: between cross entropy (q = 0) and absolute error (q = 1).

    The gradient is that of cross entropy times p_y^q, so a sample the network does not believe counts for little.
    `q=0` is cross entropy itself; `q=1` is 1 - p_y, half of the absolute error.

    Reference: Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels",
    NeurIPS 2018.

    Args:
        q: Between cross entropy (0) and mean absolute error (1).

    >>> loss = GeneralizedCrossEntropyLoss(num_classes=2, feature_dim=4, q=1.0)
    >>> loss(torch.zeros(1, 4), torch.tensor([0]), torch.nn.Linear(4, 2, bias=False)).item()  # 1 - 1/2
    0.5
    """

    names = ("generalized_cross_entropy", "gce", "lq")
    is_cross_entropy = False

    def __init__(self, *sizes: Any, q: float = 0.7, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_number(q, "q", type(self).__name__, 0, 1)
        self.q = q

    def sample_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return generalized_cross_entropy(logits, targets, self.q)


def generalized_cross_entropy(logits: Tensor, targets: Tensor, q: float) -> Tensor:
    """(1 - p_y^q) / q of every sample (N,).

    >>> generalized_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), q=0.5)  # 2 (1 - 0.5^0.5)
    tensor([0.5858])
    """
    cross_entropy = F.cross_entropy(logits, targets, reduction="none")
    if q == 0:
        return cross_entropy
    return -torch.expm1(-q * cross_entropy) / q  # 1 - p^q cancels for small q
