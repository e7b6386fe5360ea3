"""Wide residual networks for 32 px images: wrn_16_8 and wrn_28_10."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from icda.errors import InputError
from icda.models.base import FeatureClassifier
from icda.models.initialisation import kaiming_convolutions
from icda.models.registry import MODELS, image_channels


class WideResNet(nn.Module):
    """Pre-activation residual network, `widen` times wider than a CIFAR ResNet: 6n + 4 layers, 64 * widen features.

    `dropout` acts between the two convolutions of a block. Maps images (N, channels, H, W) to features (N, 64 * widen).

    Reference: S. Zagoruyko and N. Komodakis, "Wide Residual Networks", BMVC 2016.

    >>> import torch
    >>> WideResNet(depth=10, widen=2)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """

    def __init__(self, depth: int, widen: int, channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise InputError(f"WideResNet expects a depth of 6n + 4 (10, 16, 22, 28, ...), got {depth}.")
        widths = (16, 16 * widen, 32 * widen, 64 * widen)
        self.stem = nn.Conv2d(channels, widths[0], kernel_size=3, padding=1, bias=False)
        layers: list[nn.Module] = []
        for stage, width in enumerate(widths[1:]):
            layers.append(WideBlock(widths[stage], width, stride=1 if stage == 0 else 2, dropout=dropout))
            layers += [WideBlock(width, width, dropout=dropout) for _ in range(blocks - 1)]
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(widths[-1])
        kaiming_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.blocks(self.stem(images))
        return F.relu(self.norm(maps)).mean(dim=(2, 3))


class WideBlock(nn.Module):
    """BatchNorm, ReLU and convolution, twice; a 1x1 convolution carries the shortcut where the shape changes.

    >>> import torch
    >>> WideBlock(16, 32, stride=2)(torch.zeros(1, 16, 8, 8)).shape
    torch.Size([1, 32, 4, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if in_channels != out_channels or stride != 1:
            self.shortcut = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.norm1(maps))
        hidden = self.dropout(F.relu(self.norm2(self.conv1(active))))
        # As in the authors' code, a shortcut that changes the shape reads the activated maps, an identity the raw ones.
        return self.conv2(hidden) + (maps if self.shortcut is None else self.shortcut(active))


def wide_resnet(
    depth: int, widen: int, num_classes: int, input_shape: tuple[int, ...] = (), *, dropout: float = 0.0
) -> FeatureClassifier:
    """A wide ResNet with its head.

    >>> wide_resnet(10, 1, num_classes=10, dropout=0.3).feature_dim
    64
    """
    encoder = WideResNet(depth, widen, image_channels(f"wrn_{depth}_{widen}", input_shape), dropout)
    return FeatureClassifier(encoder, nn.Linear(64 * widen, num_classes))


for _depth, _widen in ((16, 8), (28, 10)):
    MODELS.register(f"wrn_{_depth}_{_widen}")(partial(wide_resnet, _depth, _widen))
