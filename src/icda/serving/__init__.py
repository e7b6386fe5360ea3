"""Models that are put to use: fitted to a user's data, kept in a folder, loaded, asked and exported."""

from icda.serving.model import Model, load
from icda.serving.predictions import Predictions, predict_data

__all__ = ["Model", "Predictions", "load", "predict_data"]
