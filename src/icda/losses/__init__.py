"""One loss per file: a small formula and an nn.Module around it."""

from icda.losses.adaptive_logit_adjustment import AdaptiveLogitAdjustmentLoss
from icda.losses.apl import ActivePassiveLoss
from icda.losses.base import LOSSES, AdjustedLoss
from icda.losses.center_loss import CenterLoss
from icda.losses.class_balanced_cross_entropy import ClassBalancedCrossEntropyLoss
from icda.losses.class_balanced_focal import ClassBalancedFocalLoss
from icda.losses.cosine import CosineHead
from icda.losses.cross_entropy import CrossEntropyLoss
from icda.losses.focal import FocalLoss
from icda.losses.generalized_cross_entropy import GeneralizedCrossEntropyLoss
from icda.losses.icda import ICDALoss
from icda.losses.isda import ISDALoss
from icda.losses.large_margin_softmax import LargeMarginSoftmaxLoss
from icda.losses.ldam import LDAMLoss
from icda.losses.logit_adjustment import LogitAdjustmentLoss
from icda.losses.risda import RISDALoss
from icda.losses.sampled_icda import SampledICDALoss
from icda.losses.sgida import SGIDALoss

__all__ = [
    "LOSSES",
    "ActivePassiveLoss",
    "AdaptiveLogitAdjustmentLoss",
    "AdjustedLoss",
    "CenterLoss",
    "ClassBalancedCrossEntropyLoss",
    "ClassBalancedFocalLoss",
    "CosineHead",
    "CrossEntropyLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "ICDALoss",
    "ISDALoss",
    "LDAMLoss",
    "LargeMarginSoftmaxLoss",
    "LogitAdjustmentLoss",
    "RISDALoss",
    "SGIDALoss",
    "SampledICDALoss",
]
