"""One loss per file: a small formula and an nn.Module around it. Names are imported when they are first asked for."""

import importlib
from typing import Any

_HOMES = {
    "LOSSES": "registry",
    "ActivePassiveLoss": "apl",
    "AdaptiveLogitAdjustmentLoss": "adaptive_logit_adjustment",
    "AdjustedLoss": "base",
    "CenterLoss": "center_loss",
    "ClassBalancedCrossEntropyLoss": "class_balanced_cross_entropy",
    "ClassBalancedFocalLoss": "class_balanced_focal",
    "CosineHead": "cosine",
    "CrossEntropyLoss": "cross_entropy",
    "FocalLoss": "focal",
    "GeneralizedCrossEntropyLoss": "generalized_cross_entropy",
    "ICDALoss": "icda",
    "ISDALoss": "isda",
    "LDAMLoss": "ldam",
    "LargeMarginSoftmaxLoss": "large_margin_softmax",
    "LogitAdjustmentLoss": "logit_adjustment",
    "RISDALoss": "risda",
    "SGIDALoss": "sgida",
    "SampledICDALoss": "sampled_icda",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'icda.losses' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"icda.losses.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
