"""Implicit semantic data augmentation (ISDA)."""

from typing import Any

import torch
from torch import Tensor

from icda.functional.augmentation import by_label
from icda.functional.moments import Moments
from icda.losses.augmented import StatisticsLoss
from icda.losses.batch import is_off


class ISDALoss(StatisticsLoss):
    """A bound on cross entropy over infinitely many augmentations along the covariance of a class.

    It is the cross entropy of z_c + (lambda/2) d_c^T Sigma_y d_c.
    lambda = lambda0 * progress. The term depends on the label alone, so it is computed once for each class.

    Reference: Wang et al., "Implicit semantic data augmentation for deep networks", NeurIPS 2019.

    >>> loss, head = ISDALoss(num_classes=3, feature_dim=4), torch.nn.Linear(4, 3)
    >>> loss(torch.randn(8, 4), torch.arange(8) % 3, head, progress=0.5).shape
    torch.Size([])
    """

    names = ("isda",)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: Any, products: Tensor
    ) -> Tensor | None:
        return self.own_variance(targets, weight, progress, self.statistics.moments())

    def own_variance(self, targets: Tensor, weight: Tensor, progress: Any, moments: Moments) -> Tensor | None:
        """The term from given moments; None while lambda is zero."""
        lam = self.lambda0 * progress
        if is_off(lam):
            return None
        own = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        return by_label(weight, targets, own, moments, lam, self.variance_bound)
