"""Figures of merit: per class, per group, many/medium/few, calibration."""

from icda.metrics.figures import (
    band_accuracy,
    calibration_error,
    confusion_matrix,
    macro_precision,
    negative_log_likelihood,
    per_class_accuracy,
    per_group_accuracy,
    per_membership_accuracy,
    train_weighted_accuracy,
    worst_group_score,
    worst_group_scorer,
)
from icda.metrics.registry import METRICS, Metric, Predictions, metric
from icda.metrics.summary import evaluate_predictions

__all__ = ["METRICS", "Metric", "Predictions", "metric"]
__all__ += ["band_accuracy", "calibration_error", "confusion_matrix", "evaluate_predictions", "macro_precision"]
__all__ += ["negative_log_likelihood", "per_class_accuracy", "per_group_accuracy", "per_membership_accuracy"]
__all__ += ["train_weighted_accuracy", "worst_group_score", "worst_group_scorer"]
