"""Twin heads: each sample trains one of two, and its label flips towards what the other, which has not seen it, says.

Flipping lets the simplest function of the features win: where a shortcut predicts most labels, the samples that go against
it are relabelled until both heads follow the shortcut alone. Where labels are wrong at random, they are put right. The
rule is that of cross-risk minimisation (XRM, Pezeshki et al. 2023), written by us for linear heads.
"""

import torch
from torch import Tensor

from icda.cross_fit.networks import flip_labels

LENGTH = 4.0  # features are scaled to this root mean square length, so that one rate fits all widths
STEPS, STEPS_BETWEEN_FLIPS = 200, 4  # of full-batch descent with momentum; every few steps labels may flip
RATE, MOMENTUM, DECAY = 0.5, 0.9, 1e-2


def twin_logits(
    features: Tensor, targets: Tensor, num_classes: int, seed: int = 0, trained: Tensor | None = None
) -> Tensor:
    """Logits (N, C) of every sample by the head that was not trained on it, after all flips.

    The loss is the mean over classes of their mean cross entropies. A head whose half lacks a class never says it. With a
    mask `trained` (N,) only those samples train heads; of all others both heads speak, and the mean is taken.

    >>> generator = torch.Generator().manual_seed(0)
    >>> truth = torch.arange(400) % 2
    >>> features = torch.randn(400, 3, generator=generator) + 4 * truth[:, None]
    >>> targets = torch.where(torch.rand(400, generator=generator) < 0.2, 1 - truth, truth)     # a fifth is wrong
    >>> bool((twin_logits(features, targets, 2).argmax(1) == truth).float().mean() > 0.97)
    True
    """
    generator = torch.Generator().manual_seed(seed)
    own = torch.randint(0, 2, (len(targets),), generator=generator)
    features = scaled_to(features, LENGTH)
    chosen = torch.ones_like(own, dtype=torch.bool) if trained is None else trained
    halves = [_Half(features, targets, (chosen & (own == k)).nonzero().flatten(), num_classes) for k in range(2)]
    for step in range(STEPS):
        for half in halves:
            half.descend()
        if step % STEPS_BETWEEN_FLIPS == 0:
            for half, other in zip(halves, reversed(halves), strict=True):
                half.flip(other.head, generator)
    outside = torch.cat([features[~chosen], features.new_ones(int((~chosen).sum()), 1)], 1)
    logits = features.new_zeros(len(targets), num_classes)
    logits[~chosen] = outside @ (0.5 * (halves[0].head + halves[1].head))
    for half, other in zip(halves, reversed(halves), strict=True):
        logits[half.rows] = half.inputs @ other.head
    return logits


class _Half:
    """The samples that one head is trained on, with their labels as they stand, and that head (A + 1, C)."""

    def __init__(self, features: Tensor, targets: Tensor, rows: Tensor, num_classes: int) -> None:
        self.rows = rows
        self.inputs = torch.cat([features[rows], features.new_ones(len(rows), 1)], 1)
        self.labels = targets[rows].clone()
        self.head = features.new_zeros(features.shape[1] + 1, num_classes)
        self._speed = torch.zeros_like(self.head)

    def descend(self) -> None:
        """One step on the class-balanced cross entropy of the labels as they stand."""
        if not len(self.rows):
            return
        counts = torch.bincount(self.labels, minlength=self.head.shape[1])
        weights = (1 / counts.clamp(min=1))[self.labels] / (counts > 0).sum()
        slope = torch.softmax(self.inputs @ self.head, 1)
        slope.scatter_add_(1, self.labels[:, None], -torch.ones_like(slope[:, :1]))
        slope *= weights[:, None]
        self._speed.mul_(MOMENTUM).add_(self.inputs.T @ slope + DECAY * self.head)
        self.head.add_(self._speed, alpha=-RATE)

    def flip(self, other: Tensor, generator: torch.Generator) -> None:
        """Take over the other head's answer, the likelier the surer it is."""
        self.labels = flip_labels(self.labels, self.inputs @ other, torch.rand(len(self.rows), generator=generator))


def twin_margins(
    features: Tensor, targets: Tensor, pairs: int = 3, seed: int = 0, trained: Tensor | None = None
) -> Tensor:
    """Two classes, several pairs of twins at once: margins (N, pairs) towards class 1 by the heads that have not seen them.

    The same rule as `twin_logits` with one row per head. All heads stand side by side in one matrix, so that the features
    are read once per step however many pairs there are. `trained` (N, pairs) says which samples train each pair.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(targets)
    own = torch.randint(0, 2, (count, pairs), generator=generator)
    inside = torch.stack([own == 0, own == 1], 2).reshape(count, 2 * pairs).to(features)  # head k of pair p: 2 p + k
    if trained is not None:
        inside = inside * trained.repeat_interleave(2, 1)
    other = 2 * torch.arange(pairs) + 1 - own
    inputs = torch.cat([scaled_to(features, LENGTH), features.new_ones(count, 1)], 1)
    labels = targets[:, None].expand(count, pairs).to(features)
    heads = features.new_zeros(inputs.shape[1], 2 * pairs)
    speed = torch.zeros_like(heads)
    for step in range(STEPS):
        slope = _binary_slope(inputs @ heads, labels.repeat_interleave(2, 1), inside)
        speed = MOMENTUM * speed + inputs.T @ slope + DECAY * heads
        heads = heads - RATE * speed
        if step % STEPS_BETWEEN_FLIPS == 0:
            chance = torch.sigmoid((inputs @ heads).gather(1, other))
            flipped = torch.rand(count, pairs, generator=generator) < (2 * chance - 1).abs()
            labels = torch.where(flipped, (chance > 0.5).to(labels), labels)
    margins = inputs @ heads
    held_out = margins.gather(1, other)
    if trained is None:
        return held_out
    return torch.where(trained, held_out, margins.view(count, pairs, 2).mean(2))


def even_cuts(targets: Tensor, cuts: int, ratio: int, seed: int = 0, fewest: int = 1) -> Tensor | None:
    """Masks (N, cuts), each a draw that cuts every class to `ratio` times the smallest; None if none is larger.

    Twins would rather split a class that is much larger than the others than tell it from them. Several draws see more of
    such a class than one. Classes of fewer than `fewest` samples are kept whole and do not count as the smallest.
    """
    counts = torch.bincount(targets)
    enough = counts[counts >= fewest]
    if not len(enough) or int(counts.max()) <= ratio * int(enough.min()):
        return None
    most = ratio * int(enough.min())
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(len(targets), cuts, dtype=torch.bool)
    for rows in ((targets == k).nonzero().flatten() for k in range(len(counts))):
        for cut in range(cuts):
            masks[rows[torch.randperm(len(rows), generator=generator)[:most]], cut] = True
    return masks


def scaled_to(features: Tensor, length: float) -> Tensor:
    """Centred, with a root mean square length of `length`.

    >>> scaled_to(torch.tensor([[1.0], [3.0]]), 4.0).tolist()
    [[-4.0], [4.0]]
    """
    centred = features - features.mean(0)
    return centred * (length / centred.square().sum(1).mean().sqrt().clamp(min=1e-12))


def _binary_slope(margins: Tensor, labels: Tensor, inside: Tensor) -> Tensor:
    """Gradient in the margins of each head's class-balanced cross entropy over the samples it is trained on."""
    ones = inside * labels
    zeros = inside - ones
    weights = ones / ones.sum(0).clamp(min=1) + zeros / zeros.sum(0).clamp(min=1)
    return 0.5 * weights * (torch.sigmoid(margins) - labels)
