import torch
from torch import Tensor

from icda.losses import AdjustedLoss


class FlatMarginLoss(AdjustedLoss):
    """Cross entropy that wants the target ahead by `margin`."""

    def __init__(
        self,
        num_classes,
        feature_dim,
        class_counts=None,
        *,
        margin: float = 0.3,
        reduction="mean",
    ) -> None:
        sizes = num_classes, feature_dim, class_counts
        super().__init__(*sizes, reduction=reduction)
        self.margin = margin

    def compute_adjustment(
        self,
        features,
        targets,
        weight,
        progress,
        products,
    ) -> Tensor:
        shape = len(targets), self.num_classes
        adjustment = torch.full(shape, self.margin)
        return adjustment.scatter(1, targets[:, None], 0.0)  # 0 at the target
