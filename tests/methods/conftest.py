"""The small networks that most methods are tried on: five inputs, six features, four classes, in float64."""

import pytest

from icda.models import create_model


@pytest.fixture
def model():
    return create_model("mlp", 4, (5,), hidden=6).double()


@pytest.fixture
def models():
    return [create_model("mlp", 4, (5,), hidden=6).double() for _ in range(2)]
