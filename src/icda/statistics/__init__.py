"""Class means and covariances: online, mergeable, synchronised across ranks, saved with the checkpoint."""

from icda.statistics.class_statistics import ClassStatistics
from icda.statistics.moments import CovarianceKind, Moments

__all__ = ["ClassStatistics", "CovarianceKind", "Moments"]
