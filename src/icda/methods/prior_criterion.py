"""The loss of methods that bring their own prior: logit adjustment, or ICDA with all its terms."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from icda.errors import InputError
from icda.losses.icda import ICDALoss
from icda.losses.logit_adjustment import LogitAdjustmentLoss
from icda.methods.base import Setup

LossName = Literal["la", "icda"]


def prior_criterion(
    setup: Setup, loss: LossName, options: dict[str, Any], prior: Tensor | None = None
) -> LogitAdjustmentLoss | ICDALoss:
    """LA or ICDA for a setup; `options` are ICDA's, `prior` a table of counts (attributes, classes)."""
    shape = (setup.num_classes, setup.feature_dim, setup.class_counts)
    if loss == "icda":
        return ICDALoss(*shape, prior=prior, **options)
    if options:
        raise InputError(f"{', '.join(options)}: an option of ICDA's terms, which loss='la' leaves out. Add loss=icda.")
    return LogitAdjustmentLoss(*shape, prior=prior)
