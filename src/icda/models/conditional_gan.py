"""A generator of images of given classes, and the discriminator that judges them: the two halves of a conditional GAN."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from icda.errors import InputError

SIZES = (8, 16, 28, 32, 64)  # sides that halve down to a smallest map of 4 or 7 pixels
GROUPS = 8  # of GroupNorm: BatchNorm would tie an image to its neighbours and a rank to its share of the batch


class ConditionalGenerator(nn.Module):
    """Noise (N, noise_dim) and classes (N,) to images (N, channels, size, size) in [-1, 1].

    Each doubling is a nearest-neighbour upsampling and a convolution, which leaves no checkerboard.
    """

    def __init__(
        self, num_classes: int, channels: int, size: int, noise_dim: int = 64, width: int = 32, widest: int = 128
    ) -> None:
        super().__init__()
        self.num_classes, self.noise_dim = num_classes, noise_dim
        side, widths = smallest_map(size), level_widths(size, width, widest)[::-1]
        self.first = nn.Linear(noise_dim + num_classes, widths[0] * side**2)
        self.smallest = (widths[0], side, side)
        layers: list[nn.Module] = [nn.GroupNorm(GROUPS, widths[0]), nn.ReLU()]
        for before, after in zip(widths, [*widths[1:], width], strict=True):
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1)]
            layers += [nn.GroupNorm(GROUPS, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, channels, 3, padding=1), nn.Tanh())

    def forward(self, noise: Tensor, classes: Tensor) -> Tensor:
        code = torch.cat([noise, F.one_hot(classes, self.num_classes).to(noise)], 1)
        return self.layers(self.first(code).view(len(noise), *self.smallest))


class ConditionalDiscriminator(nn.Module):
    """Images to a logit for being real (N,) and logits for their class (N, C), with `codes` further columns."""

    def __init__(
        self,
        num_classes: int,
        channels: int,
        size: int,
        width: int = 32,
        widest: int = 128,
        codes: int = 0,
        spectral: bool = True,
    ) -> None:
        super().__init__()
        bounded: Callable[[nn.Module], nn.Module] = spectral_norm if spectral else lambda layer: layer
        widths = level_widths(size, width, widest)
        layers: list[nn.Module] = []
        for before, after in zip([channels, *widths], widths, strict=False):
            layers += [bounded(nn.Conv2d(before, after, 4, stride=2, padding=1)), nn.LeakyReLU(0.2)]
        layers += [bounded(nn.Conv2d(widths[-1], widths[-1], 3, padding=1)), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers)
        self.source = bounded(nn.Linear(widths[-1], 1))
        self.classes = nn.Linear(widths[-1], num_classes + codes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.layers(images).mean(dim=(2, 3))
        return self.source(features).squeeze(1), self.classes(features)

    def of_class(self, images: Tensor, classes: Tensor) -> Tensor:
        """One logit for being a real image of a given class (N,): the class adds its own linear function of the features.

        A projection discriminator, Miyato and Koyama, "cGANs with projection discriminator", ICLR 2018.
        """
        source, named = self(images)
        return source + named.gather(1, classes[:, None]).squeeze(1)


def smallest_map(size: int) -> int:
    """The side of the smallest map: what is left of an allowed image size after halving."""
    if size not in SIZES:
        raise InputError(f"the GAN makes square images of {', '.join(map(str, SIZES))} pixels a side, got {size}.")
    while size % 2 == 0 and size > 4:
        size //= 2
    return size


def level_widths(size: int, width: int, widest: int) -> list[int]:
    """Channels after each halving: doubled from `width` on, `widest` at most."""
    halvings = (size // smallest_map(size)).bit_length() - 1
    return [min(width * 2**level, widest) for level in range(halvings)]
