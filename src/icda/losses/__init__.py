"""One loss a file: a small formula and an nn.Module around it."""

from icda.losses.base import LOSSES, AdjustedLoss
from icda.losses.cross_entropy import CrossEntropyLoss
from icda.losses.icda import ICDALoss
from icda.losses.isda import ISDALoss
from icda.losses.logit_adjustment import LogitAdjustmentLoss
from icda.losses.risda import RISDALoss

__all__ = ["LOSSES", "AdjustedLoss", "CrossEntropyLoss", "ICDALoss", "ISDALoss", "LogitAdjustmentLoss", "RISDALoss"]
