"""Logit adjustment (LA)."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from icda.errors import InputError
from icda.losses.base import LOSSES, LossOptions
from icda.losses.prior_loss import PriorLoss


@LOSSES.register("logit_adjustment", "la")
class LogitAdjustmentLoss(PriorLoss):
    """Cross entropy of z + tau log pi: margins that rise as a class gets rarer.

    pi is that of `class_counts`; of `prior`, counts per attribute value and class, with `attributes` in each call; or
    `log_prior` (N, C) of the call (`PriorLoss`). Test time uses plain logits.

    Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021.

    >>> loss = LogitAdjustmentLoss(num_classes=2, feature_dim=4, class_counts=torch.tensor([90, 10]))
    >>> loss.adjustment(torch.zeros(1, 4), torch.tensor([1]), torch.nn.Linear(4, 2)).round(decimals=3)
    tensor([[2.1970, 0.0000]])
    """

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        prior: Tensor | None = None,
        tau: float = 1.0,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, prior=prior, **options)
        if not math.isfinite(tau):
            raise InputError(f"tau must be finite, got {tau}.")
        self.tau = tau

    @property
    def has_class_margin(self) -> bool:
        return self.tau != 0  # not 0 * -inf for a class without samples

    def prior_margin(
        self,
        targets: Tensor,
        dtype: torch.dtype = torch.float32,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor | None:
        margin = super().prior_margin(targets, dtype, attributes, log_prior)
        if margin is None and self.has_class_margin:
            raise InputError(
                f"{self.owner} needs class_counts: the number of training samples of each class. Or give prior= for an "
                "attribute, or log_prior= in the call."
            )
        return margin

    def compute_adjustment(
        self,
        features: Tensor,
        targets: Tensor,
        weight: Tensor,
        progress: float,
        products: Tensor,
        prior_margin: Tensor | None = None,
    ) -> Tensor | None:
        return None if prior_margin is None else self.tau * prior_margin
