"""The start of the weights."""

import torch
from torch import nn

from icda.models.initialisation import kaiming_convolutions


def test_only_convolutions_are_drawn_anew() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    kaiming_convolutions(network)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.weight", "0.bias"}
    assert network[0].bias.eq(0).all()
