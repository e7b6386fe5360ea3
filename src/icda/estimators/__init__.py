"""scikit-learn estimators on embeddings or tables."""

from icda.estimators.classifier import ICDAClassifier
from icda.estimators.meta_classifier import MetaICDAClassifier
from icda.estimators.robust import RobustClassifier

__all__ = ["ICDAClassifier", "MetaICDAClassifier", "RobustClassifier"]
