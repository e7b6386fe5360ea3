"""Focal loss."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.base import AdjustedLoss
from icda.statistics.checks import check_number


class FocalLoss(AdjustedLoss):
    """Cross entropy times (1 - p_y)^gamma: samples that are already classified well count little.

    p is the softmax, so `gamma=0` is cross entropy. The published loss for object detection is a sum of sigmoids; with
    class weights that form is `class_balanced_focal`.

    Reference: Lin et al., "Focal loss for dense object detection", ICCV 2017.

    Args:
        gamma: The power of 1 - p_y, 0 or more.

    >>> loss = FocalLoss(num_classes=2, feature_dim=4, gamma=2.0)
    >>> loss(torch.zeros(1, 4), torch.tensor([0]), torch.nn.Linear(4, 2, bias=False)).item()  # log 2 / 4
    0.1732867956161499
    """

    names = ("focal",)
    is_cross_entropy = False

    def __init__(self, *sizes: Any, gamma: float = 2.0, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_number(gamma, "gamma", type(self).__name__, 0)
        self.gamma = gamma

    def sample_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return softmax_focal(logits, targets, self.gamma)


def softmax_focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """(1 - p_y)^gamma (-log p_y) of every sample (N,).

    >>> softmax_focal(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), gamma=1.0)  # log 2 / 2
    tensor([0.3466])
    """
    cross_entropy = F.cross_entropy(logits, targets, reduction="none")
    if gamma == 0:
        return cross_entropy
    # As a sum of the other classes: 1 - p_y is zero for a sure sample, where a root has no derivative.
    others = F.log_softmax(logits, dim=1).scatter(1, targets[:, None], -math.inf)
    return (gamma * torch.logsumexp(others, dim=1)).exp() * cross_entropy
