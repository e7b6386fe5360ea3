"""Densely connected networks for 32 px images: densenet_bc_100_12, densenet_bc_121, densenet_bc_265."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icda.models.base import FeatureClassifier
from icda.models.initialisation import kaiming_convolutions
from icda.models.registry import MODELS, image_channels

# name -> (layers in each dense block, growth rate). 265 is what DenseNet's authors call 264, with its head counted.
CONFIGURATIONS: dict[str, tuple[tuple[int, ...], int]] = {
    "densenet_bc_100_12": ((16, 16, 16), 12),
    "densenet_bc_121": ((6, 12, 24, 16), 32),
    "densenet_bc_265": ((6, 12, 64, 48), 32),
}


class DenseNet(nn.Module):
    """DenseNet-BC: 1x1 bottlenecks of 4 * growth channels, transitions that halve the channels, a 3x3 stem.

    The stem keeps the image's resolution whatever the block configuration, so that 32 px images stay large enough.
    Maps images (N, channels, H, W) to features (N, feature_dim).

    Reference: G. Huang et al., "Densely Connected Convolutional Networks", CVPR 2017.

    >>> import torch
    >>> encoder = DenseNet(blocks=(2, 2), growth=4)
    >>> encoder(torch.zeros(2, 3, 16, 16)).shape, encoder.feature_dim
    (torch.Size([2, 16]), 16)
    """

    def __init__(self, blocks: tuple[int, ...], growth: int, channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        width = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False)]
        for position, depth in enumerate(blocks):
            if position > 0:
                layers.append(Transition(width, width // 2))
                width //= 2
            for _ in range(depth):
                layers.append(DenseLayer(width, growth, dropout))
                width += growth
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(width)
        self.feature_dim = width
        kaiming_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.norm(self.layers(images))).mean(dim=(2, 3))


class DenseLayer(nn.Module):
    """Adds `growth` channels to all that came before: 1x1 bottleneck, then 3x3.

    >>> DenseLayer(8, growth=4)(torch.zeros(1, 8, 5, 5)).shape
    torch.Size([1, 12, 5, 5])
    """

    def __init__(self, in_channels: int, growth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * growth, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, kernel_size=3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = self.conv1(F.relu(self.norm1(maps)))
        new = self.dropout(self.conv2(F.relu(self.norm2(hidden))))
        return torch.cat([maps, new], dim=1)


class Transition(nn.Module):
    """Between two dense blocks: fewer channels, half the resolution.

    >>> Transition(8, 4)(torch.zeros(1, 8, 6, 6)).shape
    torch.Size([1, 4, 3, 3])
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(maps))), kernel_size=2)


def densenet(
    name: str, num_classes: int, input_shape: tuple[int, ...] = (), *, dropout: float = 0.0
) -> FeatureClassifier:
    """A DenseNet of `CONFIGURATIONS` with its head.

    >>> densenet("densenet_bc_100_12", num_classes=10).feature_dim
    342
    """
    blocks, growth = CONFIGURATIONS[name]
    encoder = DenseNet(blocks, growth, image_channels(name, input_shape), dropout)
    return FeatureClassifier(encoder, nn.Linear(encoder.feature_dim, num_classes))


for _name in CONFIGURATIONS:
    MODELS.register(_name)(partial(densenet, _name))
