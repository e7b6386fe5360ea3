"""Convolutional networks of our own: small_cnn, tiny_cnn, and for 32 px images resnet8 ... resnet110, wrn_*, densenet_bc_*.

Each maps images (N, channels, H, W) to features (N, feature_dim): the mean over the pixels of its last maps.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icda.errors import InputError
from icda.models.base import FeatureClassifier
from icda.models.registry import MODELS, image_channels

WIDTHS = (16, 32, 64)
DEPTHS = (8, 14, 20, 32, 44, 56, 110)
# name -> (layers in each dense block, growth rate). 265 is what DenseNet's authors call 264, with its head counted.
DENSENETS: dict[str, tuple[tuple[int, ...], int]] = {
    "densenet_bc_100_12": ((16, 16, 16), 12),
    "densenet_bc_121": ((6, 12, 24, 16), 32),
    "densenet_bc_265": ((6, 12, 64, 48), 32),
}


def kaiming_convolutions(network: nn.Module) -> None:
    """Draw every convolution from He et al.'s normal distribution (fan out, ReLU); other layers keep PyTorch's start.

    Reference: K. He et al., "Delving Deep into Rectifiers", ICCV 2015.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)


def _conv1x1(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False)


def _blocks_per_stage(network: str, depth: int, extra: int) -> int:
    """n of a network whose depth is 6n + extra."""
    blocks, rest = divmod(depth - extra, 6)
    if rest or blocks < 1:
        raise InputError(f"{network} expects a depth of 6n + {extra} ({6 + extra}, {12 + extra}, ...), got {depth}.")
    return blocks


class GlobalMean(nn.Module):
    """The mean over pixels, of what is above zero if `relu`: maps (N, A, H, W) to features (N, A)."""

    def __init__(self, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu

    def forward(self, maps: Tensor) -> Tensor:
        return (F.relu(maps) if self.relu else maps).mean(dim=(2, 3))


class SmallCNN(nn.Sequential):
    """Three times convolution, BatchNorm, ReLU: 64 features, for images of 8 to 64 px.

    With `halve` the first convolution halves the side, too, which makes the network four times cheaper.

    >>> SmallCNN(channels=1)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 64])
    """

    def __init__(self, channels: int, halve: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for position, (before, width) in enumerate(zip((channels, *WIDTHS), WIDTHS, strict=False)):
            stride = 1 if position == 0 and not halve else 2
            layers += [_conv3x3(before, width, stride), nn.BatchNorm2d(width), nn.ReLU()]
        self.layers, self.pool = nn.Sequential(*layers), GlobalMean()
        kaiming_convolutions(self)


@MODELS.register("small_cnn")
def small_cnn(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The small network with its head: it trains on a CPU while one watches."""
    return FeatureClassifier(SmallCNN(image_channels("small_cnn", input_shape)), nn.Linear(WIDTHS[-1], num_classes))


@MODELS.register("tiny_cnn")
def tiny_cnn(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The small network that halves images first: a quarter of the cost, for grids of many runs on images from 16 px."""
    encoder = SmallCNN(image_channels("tiny_cnn", input_shape), halve=True)
    return FeatureClassifier(encoder, nn.Linear(WIDTHS[-1], num_classes))


class CifarResNet(nn.Sequential):
    """The encoder of He et al.'s CIFAR networks: 6n + 2 layers in three stages, 64 features.

    Shortcuts are free of parameters (option A): where the shape changes they skip every other pixel and fill the new
    channels with zeros.

    Reference: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

    >>> CifarResNet(depth=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, depth: int, channels: int = 3) -> None:
        super().__init__()
        blocks = _blocks_per_stage("CifarResNet", depth, 2)
        self.stem = _conv3x3(channels, WIDTHS[0])
        self.stem_norm, self.relu = nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()
        self.stages = nn.Sequential()
        for stage, (before, width) in enumerate(zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False)):
            first = BasicBlock(before, width, stride=1 if stage == 0 else 2)
            self.stages.append(nn.Sequential(first, *(BasicBlock(width, width) for _ in range(blocks - 1))))
        self.pool = GlobalMean()
        kaiming_convolutions(self)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.new_channels = stride, out_channels - in_channels
        self.conv1 = _conv3x3(in_channels, out_channels, stride)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = _conv3x3(out_channels, out_channels)
        self.norm2 = nn.BatchNorm2d(out_channels)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(maps)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(maps))

    def shortcut(self, maps: Tensor) -> Tensor:
        maps = maps[:, :, :: self.stride, :: self.stride]
        before = self.new_channels // 2
        return F.pad(maps, (0, 0, 0, 0, before, self.new_channels - before)) if self.new_channels else maps


def resnet(depth: int, num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """A CIFAR ResNet with its head."""
    encoder = CifarResNet(depth, image_channels(f"resnet{depth}", input_shape))
    return FeatureClassifier(encoder, nn.Linear(WIDTHS[-1], num_classes))


class WideResNet(nn.Sequential):
    """Pre-activation residual network, `widen` times wider than a CIFAR ResNet: 6n + 4 layers, 64 * widen features.

    `dropout` acts between the two convolutions of a block.

    Reference: S. Zagoruyko and N. Komodakis, "Wide Residual Networks", BMVC 2016.

    >>> WideResNet(depth=10, widen=2)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """

    def __init__(self, depth: int, widen: int, channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        blocks = _blocks_per_stage("WideResNet", depth, 4)
        widths = [widen * width for width in WIDTHS]
        self.stem = _conv3x3(channels, WIDTHS[0])
        self.blocks = nn.Sequential()
        for stage, (before, width) in enumerate(zip((WIDTHS[0], *widths), widths, strict=False)):
            self.blocks.append(WideBlock(before, width, stride=1 if stage == 0 else 2, dropout=dropout))
            self.blocks.extend(WideBlock(width, width, dropout=dropout) for _ in range(blocks - 1))
        self.norm, self.pool = nn.BatchNorm2d(widths[-1]), GlobalMean(relu=True)
        kaiming_convolutions(self)


class WideBlock(nn.Module):
    """BatchNorm, ReLU and convolution, twice; a 1x1 convolution carries the shortcut where the shape changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = _conv3x3(in_channels, out_channels, stride)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = _conv3x3(out_channels, out_channels)
        changed = in_channels != out_channels or stride != 1
        self.shortcut = _conv1x1(in_channels, out_channels, stride) if changed else None

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.norm1(maps))
        hidden = self.dropout(F.relu(self.norm2(self.conv1(active))))
        # As in the authors' code, a shortcut that changes the shape reads the activated maps, an identity the raw ones.
        return self.conv2(hidden) + (maps if self.shortcut is None else self.shortcut(active))


def wide_resnet(
    depth: int, widen: int, num_classes: int, input_shape: tuple[int, ...] = (), *, dropout: float = 0.0
) -> FeatureClassifier:
    """A wide ResNet with its head."""
    encoder = WideResNet(depth, widen, image_channels(f"wrn_{depth}_{widen}", input_shape), dropout)
    return FeatureClassifier(encoder, nn.Linear(64 * widen, num_classes))


class DenseNet(nn.Sequential):
    """DenseNet-BC: 1x1 bottlenecks of 4 * growth channels, transitions that halve the channels, a 3x3 stem.

    The stem keeps the image's resolution whatever the block configuration, so that 32 px images stay large enough.

    Reference: G. Huang et al., "Densely Connected Convolutional Networks", CVPR 2017.

    >>> encoder = DenseNet(blocks=(2, 2), growth=4)
    >>> encoder(torch.zeros(2, 3, 16, 16)).shape, encoder.feature_dim
    (torch.Size([2, 16]), 16)
    """

    def __init__(self, blocks: tuple[int, ...], growth: int, channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        width = 2 * growth
        layers: list[nn.Module] = [_conv3x3(channels, width)]
        for position, depth in enumerate(blocks):
            if position > 0:
                layers.append(Transition(width, width // 2))
                width //= 2
            for _ in range(depth):
                layers.append(DenseLayer(width, growth, dropout))
                width += growth
        self.layers, self.norm, self.pool = nn.Sequential(*layers), nn.BatchNorm2d(width), GlobalMean(relu=True)
        self.feature_dim = width
        kaiming_convolutions(self)


class DenseLayer(nn.Module):
    """Adds `growth` channels to all that came before: 1x1 bottleneck, then 3x3."""

    def __init__(self, in_channels: int, growth: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = _conv1x1(in_channels, 4 * growth)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = _conv3x3(4 * growth, growth)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = self.conv1(F.relu(self.norm1(maps)))
        return torch.cat([maps, self.dropout(self.conv2(F.relu(self.norm2(hidden))))], dim=1)


class Transition(nn.Module):
    """Between two dense blocks: fewer channels, half the resolution."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = _conv1x1(in_channels, out_channels)

    def forward(self, maps: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(maps))), kernel_size=2)


def densenet(
    name: str, num_classes: int, input_shape: tuple[int, ...] = (), *, dropout: float = 0.0
) -> FeatureClassifier:
    """A DenseNet of `DENSENETS` with its head."""
    blocks, growth = DENSENETS[name]
    encoder = DenseNet(blocks, growth, image_channels(name, input_shape), dropout)
    return FeatureClassifier(encoder, nn.Linear(encoder.feature_dim, num_classes))


for _depth in DEPTHS:
    MODELS.register(f"resnet{_depth}")(partial(resnet, _depth))
for _depth, _widen in ((16, 8), (28, 10)):
    MODELS.register(f"wrn_{_depth}_{_widen}")(partial(wide_resnet, _depth, _widen))
for _name in DENSENETS:
    MODELS.register(_name)(partial(densenet, _name))
