"""Logit adjustment (LA)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.losses.inputs import Counts
from icda.losses.prior_loss import PriorLoss
from icda.statistics.checks import check_number


class LogitAdjustmentLoss(PriorLoss):
    """Cross entropy of z + tau log pi, with larger margins for rarer classes.

    pi is that of `class_counts`; of `prior`, counts per attribute value and class, with `attributes` in each call; or
    `log_prior` (N, C) of the call (`PriorLoss`). Test time uses plain logits.

    Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021.

    Args:
        tau: What the margin is multiplied by.

    >>> loss = LogitAdjustmentLoss(num_classes=2, feature_dim=4, class_counts=torch.tensor([90, 10]))
    >>> loss.adjustment(torch.zeros(1, 4), torch.tensor([1]), torch.nn.Linear(4, 2)).round(decimals=3)
    tensor([[2.1970, 0.0000]])
    """

    names = ("logit_adjustment", "la")

    def __init__(self, *sizes: Any, prior: Counts = None, tau: float = 1.0, **options: Any) -> None:
        super().__init__(*sizes, prior=prior, **options)
        check_number(tau, "tau", "LogitAdjustmentLoss")
        self.tau = tau

    @property
    def margin_scale(self) -> float:
        return self.tau

    def prior_margin(
        self,
        targets: Tensor,
        dtype: torch.dtype = torch.float32,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor | None:
        margin = super().prior_margin(targets, dtype, attributes, log_prior)
        if margin is None and self.margin_scale != 0:
            raise InputError(
                f"{type(self).__name__} needs class_counts: the number of training samples of each class. Or give prior= "
                "for an attribute, or log_prior= in the call."
            )
        return margin
