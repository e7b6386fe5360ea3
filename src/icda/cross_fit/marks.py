"""A part of the picture that alone tells the class as well as everything together: a stamp, a frame, a watermark.

Networks blend such a mark with what they know of the class. They contradict few labels for it, and still fail on pictures
without the bias. Looked at alone it stands out: every part of the picture is read by its nearest neighbours, and in natural
pictures of ten classes the best part tells less than the whole. Of two classes it may tell as much. There a mark shows by
where it contradicts the label: not only at the border between the classes, and in samples whose rest looks like any other
of their class.
"""

from typing import NamedTuple

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit.flatness import margin_of
from icda.cross_fit.pairs import share, skill
from icda.data.generators import generator_for

FIELDS = 16  # of a shrunken picture, on a side
FILTERS, SIZES = 64, (3, 5)  # that nobody trained, of each size
QUARTERS = 2  # parts on a side, over which an answer of a filter is averaged
COARSE = 4  # larger parts on a side, of two by two means each; a smaller part is one field
NEIGHBOURS = 15
SAMPLES, SCANNED = 3000, 1000  # that are read in the chosen part, and in every part
SAME = 0.2  # on the way from guessing to certainty: a part that says so often what the mark says has some of it
EXACT = 12  # numbers in a part, up to which distances are sums of squares
LEAST_SKILL = 0.1  # of the rest, over guessing
ROWS = 4096  # asked at a time


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


class Mark(NamedTuple):
    """What the part of the picture says that tells the class best."""

    answers: Tensor  # (N,) a class for each sample
    classes: int
    skill: float  # of the answers, from guessing, 0, to perfection, 1
    known: float  # the same, read off the whole picture
    errors: float  # share of labels that the part contradicts
    against: int  # their number, among those looked at
    overlap: float  # AUROC by which the reading is surer where it is right: 0.5 for a mark, near 1 for overlap
    kept: float  # of the skill of the rest of the picture, what is left where the part contradicts the label
    place: str

    @property
    def sentence(self) -> str:
        return (
            f"A part of the picture ({self.place}) alone tells {100 * (1 - self.errors):.0f} % of the labels: a skill of "
            f"{self.skill:.2f}, beside {self.known:.2f} of the whole. Where it contradicts a label, the rest of the "
            f"picture keeps {self.kept:.2f} of its skill, and the reading is less sure with an AUROC of "
            f"{self.overlap:.2f} (a mark: near 1 and 0.5)."
        )


def find_mark(images: Tensor, targets: Tensor, num_classes: int, seed: int) -> Mark:
    """The part of shrunken images (N, C, h, w) that tells the labels (N,) best, and what it says."""
    order = torch.randperm(len(targets), generator=generator_for(seed, "marks"))[:SAMPLES]
    fields, labels = images[order], targets[order]
    masks = _masks(*fields.shape[2:])
    parts = [_part(fields, number) for number in range(len(masks))]
    scanned = labels[:SCANNED]
    said = torch.stack([neighbour_shares(part[:SCANNED], scanned, num_classes).argmax(1) for part in parts])
    best = max(range(len(parts)), key=lambda part: skill(said[part], scanned, num_classes))
    shares = neighbour_shares(parts[best], labels, num_classes)
    answers = shares.argmax(1)
    against = answers != labels
    same = torch.stack([(other == answers[:SCANNED])[against[:SCANNED]].double().mean() for other in said])
    carries = same >= 1 / num_classes + SAME * (1 - 1 / num_classes)
    carries[best] = True
    rest = fields[:, :, ~masks[carries].any(0)].flatten(1)
    asked = [neighbour_shares(parts[best], labels, num_classes, rows) for rows in _part(images, best).split(ROWS)]
    everyone = torch.cat(asked).argmax(1)
    everyone[order] = answers
    return Mark(
        answers=everyone,
        classes=num_classes,
        skill=skill(answers, labels, num_classes),
        known=skill(neighbour_shares(fields.flatten(1), labels, num_classes).argmax(1), labels, num_classes),
        errors=share(against),
        against=int(against.sum()),
        overlap=_overlap(shares, against),
        kept=_kept(rest, labels, against, num_classes),
        place=_place(masks[best]),
    )


def neighbour_shares(known: Tensor, targets: Tensor, num_classes: int, asked: Tensor | None = None) -> Tensor:
    """Shares (n, C) of the classes among the nearest of the samples known (N, A); without `asked`, of the others.

    One sample's worth of the classes' own shares is counted beside them.

    >>> known = torch.arange(40.0)[:, None]
    >>> neighbour_shares(known, (known[:, 0] >= 20).long(), 2, torch.tensor([[3.0], [30.0]])).argmax(1).tolist()
    [0, 1]
    """
    mean, spread = known.mean(0), known.std(0, correction=0).clamp(min=1e-6)
    points = (known - mean) / spread
    # Where pictures have the same mark, their distance is exactly zero.
    mode = "donot_use_mm_for_euclid_dist" if known.shape[1] <= EXACT else "use_mm_for_euclid_dist"
    distances = torch.cdist(points if asked is None else (asked - mean) / spread, points, compute_mode=mode)
    if asked is None:
        distances.fill_diagonal_(torch.inf)
    nearest = distances.topk(min(NEIGHBOURS, len(known) - 1), largest=False).indices
    labels = F.one_hot(targets, num_classes).float()
    votes = labels[nearest].sum(1) + labels.mean(0)
    return votes / votes.sum(1, keepdim=True)


def _masks(height: int, width: int) -> Tensor:
    """Which of the fields (parts, h, w) each part covers: one of them or, unless pictures are tiny, a coarse one."""
    fine = torch.eye(height * width).bool().view(-1, height, width)
    if min(height, width) < 2 * COARSE:
        return fine
    numbers = torch.arange(float(COARSE * COARSE)).view(1, 1, COARSE, COARSE)
    covered = F.interpolate(numbers, (height, width))[0, 0].long()
    return torch.cat([fine, covered == torch.arange(COARSE * COARSE)[:, None, None]])


def _part(images: Tensor, number: int) -> Tensor:
    """Features (N, A) of a part."""
    height, width = images.shape[2:]
    if number < height * width:
        return images[:, :, number // width, number % width]
    row, column = divmod(number - height * width, COARSE)
    cells = F.adaptive_avg_pool2d(images, (2 * COARSE, 2 * COARSE))
    return cells[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].flatten(1)


def _overlap(shares: Tensor, against: Tensor) -> float:
    if not against.any() or against.all():
        return 1.0
    return float(roc_auc_score(~against, margin_of(shares)))


def _kept(rest: Tensor, labels: Tensor, against: Tensor, num_classes: int) -> float:
    """The skill of the rest of the picture where the part contradicts the label over that on others of these classes."""
    if not rest.shape[1] or not against.any() or against.all():
        return 0.0
    shares = neighbour_shares(rest, labels, num_classes) / torch.bincount(labels, minlength=num_classes).clamp(min=1)
    right = (shares.argmax(1) == labels).double()
    counts = torch.bincount(labels[~against], minlength=num_classes).clamp(min=1)
    recalls = torch.bincount(labels[~against], right[~against], minlength=num_classes) / counts
    expected, guessed = float(recalls[labels[against]].mean()), 1 / num_classes
    error = (expected * (1 - expected) / int(against.sum())) ** 0.5
    if expected - guessed < max(LEAST_SKILL, 2 * error):  # the rest tells nothing that could be kept
        return 0.0
    return min(max((share(right[against] > 0) - guessed) / (expected - guessed), 0.0), 1.0)


def _place(mask: Tensor) -> str:
    """>>> _place(torch.eye(9).bool()[:1].view(1, 3, 3)[0])
    'top left'
    """
    down, across = (
        float(axis.float().mean() + 0.5) / side for axis, side in zip(mask.nonzero().T, mask.shape, strict=True)
    )
    rows, columns = ("top", "middle", "bottom"), ("left", "centre", "right")
    return f"{rows[min(int(3 * down), 2)]} {columns[min(int(3 * across), 2)]}"
