"""A stand-in for SGIDA, whose formula is not public."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.functional.augmentation import by_label
from icda.losses.augmented import StatisticsLoss
from icda.losses.batch import LossBatch, is_off
from icda.losses.cosine import cosines
from icda.statistics.checks import check_number


class SGIDALoss(StatisticsLoss):
    """APPROXIMATION of SGIDA (its formula is not public): ISDA with covariances smoothed over classes, plus a triplet loss.

    Only the abstract was at hand, which names infinite augmentation, directions smoothed by the relations between classes,
    and a metric loss on the logits. What stands here is our reading (mathematics 5.1): Sigma~_y = (1 - s) Sigma_y + s sum_j
    rho_{y,j} Sigma_j, with rho_y the softmax over the other classes of the cosines of their means with that of y, and
    `triplet_weight` times the batch-hard triplet loss of the logits. s is `smoothing`; lambda = lambda0 * progress.
    `smoothing=0, triplet_weight=0` is ISDA. Numbers of this loss say nothing about the published method.

    Reference: Wang et al., TNNLS 2024, of which we know the abstract alone.

    Args:
        smoothing: s, the share of the other classes' covariances, in [0, 1].
        triplet_weight: What the triplet loss is multiplied by.
        triplet_margin: By how much another class must be further away than the own, in logits.

    >>> loss, head = SGIDALoss(num_classes=3, feature_dim=4), torch.nn.Linear(4, 3)
    >>> loss(torch.randn(8, 4), torch.arange(8) % 3, head, progress=0.5).shape
    torch.Size([])
    """

    names = ("sgida",)

    def __init__(
        self,
        *sizes: Any,
        lambda0: float = 0.5,
        smoothing: float = 0.2,
        triplet_weight: float = 0.1,
        triplet_margin: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, lambda0=lambda0, **options)
        for name, value, most in (
            ("smoothing", smoothing, 1),
            ("triplet_weight", triplet_weight, math.inf),
            ("triplet_margin", triplet_margin, math.inf),
        ):
            check_number(value, name, type(self).__name__, 0, most)
        self.smoothing, self.triplet_weight, self.triplet_margin = smoothing, triplet_weight, triplet_margin

    def extra_losses(self, batch: LossBatch) -> Tensor | None:
        if self.triplet_weight == 0:
            return None
        triplets = batch_hard_triplet(batch.wide_logits, batch.targets, self.triplet_margin, batch.valid)
        return self.triplet_weight * triplets

    def relations(self) -> Tensor:
        """rho (C, C): rows sum to one over the other classes seen so far; a class alone is related to itself."""
        mean, seen = self.statistics.mean, self.statistics.count > 0
        identity = torch.eye(self.num_classes, dtype=torch.bool, device=mean.device)
        allowed = seen[None, :] & ~identity
        allowed = torch.where(allowed.any(1, keepdim=True), allowed, identity)
        return cosines(mean, mean).masked_fill(~allowed, -math.inf).softmax(1)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: Any, products: Tensor
    ) -> Tensor | None:
        lam = self.lambda0 * progress
        if is_off(lam):
            return None
        own = torch.eye(self.num_classes, dtype=weight.dtype, device=weight.device)
        mixing = torch.lerp(own, self.relations().to(weight), self.smoothing)
        return by_label(weight, targets, mixing, self.statistics.moments(), lam, self.variance_bound)


def batch_hard_triplet(logits: Tensor, targets: Tensor, margin: float, valid: Tensor | None = None) -> Tensor:
    """max(0, margin + distance to the farthest of the own class - to the nearest of another) (N,).

    Distances are Euclidean. A sample without another of its class, or with none of another class, has loss 0. Those that
    are not `valid` (N,) are nobody's neighbours.

    Reference: Hermans et al., "In defense of the triplet loss for person re-identification", 2017.

    >>> batch_hard_triplet(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1]), margin=1.5)
    tensor([0.0000, 0.5000, 0.0000])
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    distances = torch.cdist(logits, logits, compute_mode="donot_use_mm_for_euclid_dist")
    counted = torch.ones_like(targets, dtype=torch.bool) if valid is None else valid
    same, other = targets[:, None] == targets, (targets[:, None] != targets) & counted
    positive = same & counted & ~torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    farthest = distances.masked_fill(~positive, 0).amax(1)
    nearest = distances.masked_fill(~other, math.inf).amin(1)
    usable = positive.any(1) & other.any(1)
    return torch.where(usable, F.relu(margin + farthest - torch.where(usable, nearest, 0)), 0)
