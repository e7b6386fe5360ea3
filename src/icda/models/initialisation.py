"""How the weights of our own networks start."""

from __future__ import annotations

from torch import nn


def kaiming_convolutions(network: nn.Module) -> None:
    """Draw every convolution from He et al.'s normal distribution (fan out, ReLU); other layers keep PyTorch's start.

    Reference: K. He et al., "Delving Deep into Rectifiers", ICCV 2015.

    >>> layer = nn.Conv2d(8, 64, 3)
    >>> kaiming_convolutions(layer)
    >>> round(float(layer.weight.detach().std()), 2)  # sqrt(2 / (64 * 9))
    0.06
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
