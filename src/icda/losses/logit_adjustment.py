"""Logit adjustment (LA)."""

from __future__ import annotations

from torch import Tensor

from icda.losses.base import LOSSES, AdjustedLoss, Reduction
from icda.losses.terms.prior import prior_term


@LOSSES.register("logit_adjustment", "la")
class LogitAdjustmentLoss(AdjustedLoss):
    """Cross entropy of z + tau log pi: margins that rise as a class gets rarer.

    Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021. Test time uses plain logits.

    >>> import torch
    >>> loss = LogitAdjustmentLoss(num_classes=2, feature_dim=4, class_counts=torch.tensor([90, 10]))
    >>> loss.adjustment(torch.zeros(1, 4), torch.tensor([1]), torch.nn.Linear(4, 2)).round(decimals=3)
    tensor([[2.1970, 0.0000]])
    """

    needs_counts = True

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        tau: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, reduction=reduction)
        self.tau = tau

    @property
    def reads_counts(self) -> bool:
        return self.tau != 0

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        if self.tau == 0:  # not 0 * -inf for a class without samples
            return None
        assert self.class_counts is not None
        return self.tau * prior_term(self.class_counts, targets, products.dtype)
