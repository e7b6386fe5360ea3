"""Digits in red and green, with a colour that tells the class in training and lies at test time."""

from __future__ import annotations

import torch
from torch import Tensor

COLOURS = ("red", "green")
CLASSES = ("digit<5", "digit>=5")
GROUP_NAMES = tuple(f"{name}, {colour}" for name in CLASSES for colour in COLOURS)
GROUP_COLOURS = tuple(range(len(COLOURS))) * len(CLASSES)  # which of COLOURS each group has


def flip_some(values: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Binary values, each changed to the other with `probability`.

    >>> flip_some(torch.tensor([0, 1, 1]), 1.0, torch.Generator())
    tensor([1, 0, 0])
    """
    return values ^ (torch.rand(len(values), generator=generator) < probability).long()


def flip_share(values: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Binary values with exactly `share` of the zeros and of the ones changed, rounded.

    For sets so small that chance would leave the groups uneven.

    >>> int(flip_share(torch.zeros(20, dtype=torch.long), 0.05, torch.Generator()).sum())
    1
    """
    flipped = values.clone()
    for value in (0, 1):
        positions = (values == value).nonzero().flatten()
        chosen = torch.randperm(len(positions), generator=generator)[: round(share * len(positions))]
        flipped[positions[chosen]] = 1 - value
    return flipped


def group_of(targets: Tensor, colours: Tensor) -> Tensor:
    """The group of each sample, in the order of `GROUP_NAMES`: class times colour."""
    return targets * len(COLOURS) + colours


def paint(images: Tensor, colours: Tensor) -> Tensor:
    """Grey images (N, H, W) as RGB (N, H, W, 3): the intensity goes into red (colour 0) or green (1) and nowhere else.

    >>> paint(torch.tensor([[[7]], [[9]]], dtype=torch.uint8), torch.tensor([0, 1])).flatten().tolist()
    [7, 0, 0, 0, 9, 0]
    """
    painted = torch.zeros(*images.shape, 3, dtype=images.dtype)
    painted[..., 0] = images * (colours == 0).view(-1, 1, 1)
    painted[..., 1] = images * (colours == 1).view(-1, 1, 1)
    return painted
