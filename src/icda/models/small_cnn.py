"""Small convolutional networks that train on a CPU while one watches: small_cnn and tiny_cnn."""

from __future__ import annotations

from torch import Tensor, nn

from icda.models.base import FeatureClassifier
from icda.models.initialisation import kaiming_convolutions
from icda.models.registry import MODELS, image_channels

WIDTHS = (16, 32, 64)


class SmallCNN(nn.Module):
    """Three times convolution, BatchNorm, ReLU, then the mean over pixels: 64 features, for images of 8 to 64 px.

    Maps images (N, channels, H, W) to features (N, 64). With `halve` the first convolution halves the side, too, which
    makes the network four times cheaper.

    >>> import torch
    >>> SmallCNN(channels=1)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 64])
    """

    def __init__(self, channels: int, halve: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for position, width in enumerate(WIDTHS):
            before = channels if position == 0 else WIDTHS[position - 1]
            stride = 1 if position == 0 and not halve else 2
            layers += [nn.Conv2d(before, width, kernel_size=3, stride=stride, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        kaiming_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean(dim=(2, 3))


@MODELS.register("small_cnn")
def small_cnn(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The small network with its head.

    >>> small_cnn(num_classes=10, input_shape=(1, 28, 28)).feature_dim
    64
    """
    return FeatureClassifier(SmallCNN(image_channels("small_cnn", input_shape)), nn.Linear(WIDTHS[-1], num_classes))


@MODELS.register("tiny_cnn")
def tiny_cnn(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The small network that halves images first: a quarter of the cost, for grids of many runs on images from 16 px.

    >>> tiny_cnn(num_classes=2, input_shape=(3, 64, 64)).encoder.layers[0].stride
    (2, 2)
    """
    encoder = SmallCNN(image_channels("tiny_cnn", input_shape), halve=True)
    return FeatureClassifier(encoder, nn.Linear(WIDTHS[-1], num_classes))
