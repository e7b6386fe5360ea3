"""Pictures as means over a few fields, and what filters see in them that nobody trained."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for

FIELDS = 16  # on a side
FILTERS, SIZES = 64, (3, 5)  # of each size
QUARTERS = 2  # parts on a side, over which an answer is averaged


def shrink(images: Tensor) -> Tensor:
    """Images (N, C, H, W) as means over at most 16 x 16 fields."""
    height, width = images.shape[2:]
    return F.adaptive_avg_pool2d(images.float().nan_to_num(0.0, 0.0, 0.0), (min(FIELDS, height), min(FIELDS, width)))


def filtered(images: Tensor, seed: int) -> Tensor:
    """Features (N, A) of shrunken images that never saw a label: random filters, rectified, averaged over each quarter."""
    generator, seen = generator_for(seed, "filters"), []
    for size in SIZES:
        filters = torch.randn(FILTERS, images.shape[1], size, size, generator=generator)
        filters -= filters.mean((1, 2, 3), keepdim=True)
        filters /= filters.square().sum((1, 2, 3), keepdim=True).sqrt()
        answers = F.conv2d(images, filters, padding=size // 2).relu()
        seen.append(F.adaptive_avg_pool2d(answers, QUARTERS).flatten(1))
    return torch.cat(seen, 1)
