"""Encoders and linear heads behind one face: networks of our own, and adapters for everybody else's."""

from icda.models.adapters import from_torch
from icda.models.base import FeatureClassifier, Output
from icda.models.huggingface import from_huggingface
from icda.models.registry import MODELS, create_model

__all__ = ["MODELS", "FeatureClassifier", "Output", "create_model", "from_huggingface", "from_torch"]
