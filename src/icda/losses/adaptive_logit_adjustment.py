"""Adaptive logit adjustment (ALA)."""

import math

import torch
from torch import Tensor

from icda.functional.augmentation import off_target
from icda.losses.cosine import CosineLoss


class AdaptiveLogitAdjustmentLoss(CosineLoss):
    """Cross entropy of scaled cosines, with larger margins for hard samples and rare classes.

    The logits are s cos(h, w_c), that of the target lowered by s D_i Q_y.
    D_i = (1 - cos(h_i, w_y)) / 2 is how hard a sample is, Q_y = log 2 / log(n_y / n_min + 1) how rare its class; both are
    constants to the gradient. The logits are cosines times `scale`, computed here from `features` and `head`: `logits=` and
    a bias are not used, and prediction needs cosines too (see `CosineHead`).

    Reference: Zhao et al., "Adaptive logit adjustment loss for long-tailed visual recognition", AAAI 2022; formula of a
    third party's port (mathematics 5.1).

    >>> loss = AdaptiveLogitAdjustmentLoss(num_classes=2, feature_dim=4, class_counts=torch.tensor([30, 10]))
    >>> loss.rarity
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    names = ("adaptive_logit_adjustment", "ala")
    needs_counts = reads_counts = True

    @property
    def rarity(self) -> Tensor:
        """Q (C,), float64: 1 for the rarest class that has samples."""
        assert self.class_counts is not None
        fewest = torch.where(self.class_counts > 0, self.class_counts, math.inf).min()
        return math.log(2) / torch.log1p(self.class_counts.clamp(min=fewest) / fewest)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        own = products.gather(1, targets[:, None]).squeeze(1)
        difficulty = 0.5 * (self.scale - own)  # s D_i; products are s cos
        return off_target(difficulty * self.rarity[targets].to(own), targets, self.num_classes)
