"""Train classifiers on biased data so that they stay right when the bias is gone.

The names below are imported when they are first asked for: `import icda` costs nothing, and the command line can set its
environment before torch is loaded. Data, models, training and the rest live in their own rooms.
"""

import importlib
from typing import TYPE_CHECKING, Any

from icda._version import __version__

if TYPE_CHECKING:
    from icda.auditing import Audit, Questions, Verdict, ask, audit
    from icda.estimators.classifier import ICDAClassifier
    from icda.estimators.meta_classifier import MetaICDAClassifier
    from icda.estimators.robust import RobustClassifier
    from icda.functional.strength import Strength, direct_strength
    from icda.losses import AdjustedLoss, CrossEntropyLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss
    from icda.meta.strength_network import StrengthNetwork
    from icda.methods.meta_loop import MetaICDA
    from icda.serving import load
    from icda.statistics import ClassStatistics, Moments
    from icda.statistics.augment import AugmentedFeatures, augment
    from icda.training import train

_NAMES = {
    "icda.auditing": ("Audit", "Questions", "Verdict", "ask", "audit"),
    "icda.estimators.classifier": ("ICDAClassifier",),
    "icda.estimators.meta_classifier": ("MetaICDAClassifier",),
    "icda.estimators.robust": ("RobustClassifier",),
    "icda.functional.strength": ("Strength", "direct_strength"),
    "icda.losses": ("AdjustedLoss", "CrossEntropyLoss", "ICDALoss", "ISDALoss", "LogitAdjustmentLoss", "RISDALoss"),
    "icda.meta.strength_network": ("StrengthNetwork",),
    "icda.methods.meta_loop": ("MetaICDA",),
    "icda.serving": ("load",),
    "icda.statistics": ("ClassStatistics", "Moments"),
    "icda.statistics.augment": ("AugmentedFeatures", "augment"),
    "icda.training": ("train",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = ["Audit", "Questions", "Verdict", "__version__", "ask", "audit", "load", "train"]
__all__ += ["ICDAClassifier", "MetaICDA", "MetaICDAClassifier", "RobustClassifier", "StrengthNetwork"]
__all__ += ["AdjustedLoss", "CrossEntropyLoss", "ICDALoss", "ISDALoss", "LogitAdjustmentLoss", "RISDALoss"]
__all__ += ["AugmentedFeatures", "ClassStatistics", "Moments", "Strength", "augment", "direct_strength"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'icda' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
