"""icda inside the training loops people already have: any torch loop, Hugging Face's Trainer, Lightning.

Names that need an optional package are imported when they are first asked for.
"""

import importlib
from typing import Any

from icda.integrations.feature_tap import FeatureTap

_LAZY = {
    "RobustCallback": "icda.integrations.lightning",
    "RobustTrainer": "icda.integrations.huggingface",
    "TappedLoss": "icda.integrations.lightning",
    "compute_loss_func": "icda.integrations.huggingface",
}

__all__ = ["FeatureTap", "RobustCallback", "RobustTrainer", "TappedLoss", "compute_loss_func"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
