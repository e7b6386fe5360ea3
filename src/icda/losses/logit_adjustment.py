"""Logit adjustment (LA)."""

from typing import Any

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

    >>> import torch
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

    def check_prior(self, attributes: Any, log_prior: Any) -> None:
        super().check_prior(attributes, log_prior)
        if log_prior is None and self.prior is None and self.class_counts is None and self.tau != 0:
            raise InputError(
                f"{type(self).__name__} needs class_counts: the number of training samples of each class. Or give prior= "
                "for an attribute, or log_prior= in the call."
            )
