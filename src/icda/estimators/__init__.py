"""scikit-learn estimators on embeddings or tables."""

from icda.estimators.classifier import ICDAClassifier
from icda.estimators.meta_classifier import MetaICDAClassifier

__all__ = ["ICDAClassifier", "MetaICDAClassifier"]
