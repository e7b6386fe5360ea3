"""Residual networks for 32 px images: resnet8 ... resnet110."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from icda.errors import InputError
from icda.models.base import FeatureClassifier
from icda.models.initialisation import kaiming_convolutions
from icda.models.registry import MODELS, image_channels

DEPTHS = (8, 14, 20, 32, 44, 56, 110)
WIDTHS = (16, 32, 64)


class CifarResNet(nn.Module):
    """The encoder of He et al.'s CIFAR networks: 6n + 2 layers in three stages, 64 features.

    Shortcuts are free of parameters (option A): where the shape changes they skip every other pixel and fill the new
    channels with zeros. Maps images (N, channels, H, W) to features (N, 64).

    Reference: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

    >>> import torch
    >>> CifarResNet(depth=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, depth: int, channels: int = 3) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise InputError(f"CifarResNet expects a depth of 6n + 2 (8, 14, 20, ...), got {depth}.")
        self.stem = _conv3x3(channels, WIDTHS[0])
        self.stem_norm = nn.BatchNorm2d(WIDTHS[0])
        self.stages = nn.Sequential(*(_stage(stage, blocks) for stage in range(len(WIDTHS))))
        kaiming_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stages(F.relu(self.stem_norm(self.stem(images))))
        return maps.mean(dim=(2, 3))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters.

    >>> import torch
    >>> BasicBlock(16, 32, stride=2)(torch.zeros(1, 16, 8, 8)).shape
    torch.Size([1, 32, 4, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = out_channels - in_channels
        self.conv1 = _conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv3x3(out_channels, out_channels)
        self.norm2 = nn.BatchNorm2d(out_channels)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(maps)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(maps))

    def shortcut(self, maps: Tensor) -> Tensor:
        if self.stride != 1:
            maps = maps[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            before = self.new_channels // 2
            maps = F.pad(maps, (0, 0, 0, 0, before, self.new_channels - before))
        return maps


def resnet(depth: int, num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """A CIFAR ResNet with its head.

    >>> sum(p.numel() for p in resnet(20, num_classes=10).parameters())
    269722
    """
    encoder = CifarResNet(depth, image_channels(f"resnet{depth}", input_shape))
    return FeatureClassifier(encoder, nn.Linear(WIDTHS[-1], num_classes))


def _stage(stage: int, blocks: int) -> nn.Sequential:
    width = WIDTHS[stage]
    first = BasicBlock(width, width) if stage == 0 else BasicBlock(WIDTHS[stage - 1], width, stride=2)
    return nn.Sequential(first, *(BasicBlock(width, width) for _ in range(blocks - 1)))


def _conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)


for _depth in DEPTHS:
    MODELS.register(f"resnet{_depth}")(partial(resnet, _depth))
