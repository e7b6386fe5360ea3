"""Train classifiers on biased data so that they stay right when the bias is gone.

Losses, class statistics and strengths are exported here; data, models, training and the command line live in their own
rooms and are imported when asked for.
"""

from typing import TYPE_CHECKING, Any

from icda._version import __version__
from icda.losses import (
    AdjustedLoss,
    CrossEntropyLoss,
    ICDALoss,
    ISDALoss,
    LogitAdjustmentLoss,
    RISDALoss,
)
from icda.methods.meta_loop import MetaICDA
from icda.statistics import ClassStatistics, Moments
from icda.strength import AugmentedFeatures, Strength, StrengthNetwork, augment, direct_strength

if TYPE_CHECKING:
    from icda.integrations.classifier import ICDAClassifier

__all__ = [
    "AdjustedLoss",
    "AugmentedFeatures",
    "ClassStatistics",
    "CrossEntropyLoss",
    "ICDAClassifier",
    "ICDALoss",
    "ISDALoss",
    "LogitAdjustmentLoss",
    "MetaICDA",
    "Moments",
    "RISDALoss",
    "Strength",
    "StrengthNetwork",
    "__version__",
    "augment",
    "direct_strength",
]


def __getattr__(name: str) -> Any:
    if name == "ICDAClassifier":  # imported when asked for: a training loop has no need of scikit-learn
        from icda.integrations.classifier import ICDAClassifier

        return ICDAClassifier
    raise AttributeError(f"module 'icda' has no attribute {name!r}")
