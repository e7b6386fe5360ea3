"""Models for feature vectors, tables and tiny images: mlp and linear."""

from __future__ import annotations

import math

from torch import nn

from icda.errors import InputError
from icda.models.base import FeatureClassifier
from icda.models.registry import MODELS


@MODELS.register("mlp")
def mlp(num_classes: int, input_shape: tuple[int, ...], *, hidden: int = 128) -> FeatureClassifier:
    """One hidden ReLU layer over the flattened input, without BatchNorm, so that no sample sees another.

    >>> mlp(num_classes=10, input_shape=(1, 8, 8)).feature_dim
    128
    """
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(_input_size("mlp", input_shape), hidden), nn.ReLU())
    return FeatureClassifier(encoder, nn.Linear(hidden, num_classes))


@MODELS.register("linear")
def linear(num_classes: int, input_shape: tuple[int, ...]) -> FeatureClassifier:
    """The head alone: the features are the inputs, flattened where they have more than one axis.

    >>> import torch
    >>> inputs = torch.rand(2, 7)
    >>> torch.equal(linear(num_classes=3, input_shape=(7,))(inputs).features, inputs)
    True
    """
    return FeatureClassifier(nn.Flatten(), nn.Linear(_input_size("linear", input_shape), num_classes))


def _input_size(model: str, input_shape: tuple[int, ...]) -> int:
    if not input_shape:
        raise InputError(f"{model} needs the shape of one input, for example input_shape=(64,) or (1, 28, 28).")
    return math.prod(input_shape)
