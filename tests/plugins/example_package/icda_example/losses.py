import torch
from torch import Tensor

from icda.losses import AdjustedLoss


class FlatMarginLoss(AdjustedLoss):
    """Cross entropy that wants the target ahead of every other class by `margin`."""

    def __init__(self, num_classes, feature_dim, class_counts=None, *, margin: float = 0.3, reduction="mean") -> None:
        super().__init__(num_classes, feature_dim, class_counts, reduction=reduction)
        self.margin = margin

    def compute_adjustment(self, features, targets, weight, progress, products) -> Tensor:
        adjustment = torch.full((len(targets), self.num_classes), self.margin)
        return adjustment.scatter(1, targets[:, None], 0.0)  # zero at the target
