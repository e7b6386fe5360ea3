"""Class means and covariances: online, mergeable, synchronised across ranks, saved with the checkpoint."""

from icda.functional.moments import CovarianceKind, Moments
from icda.statistics.class_statistics import ClassStatistics

__all__ = ["ClassStatistics", "CovarianceKind", "Moments"]
