"""Center loss."""

from typing import Any

import torch
from torch import Tensor

from icda.losses.base import AdjustedLoss
from icda.losses.batch import LossBatch
from icda.ranks import all_reduce
from icda.statistics.checks import check_number


class CenterLoss(AdjustedLoss):
    """Cross entropy plus a penalty that pulls features to a moving centre of their class.

    The penalty is (w/2) |h - c_y|^2.
    In train mode a call takes the distances to the centres as they are and then moves them by the paper's rule, c <- c -
    rate * sum_{i: y_i = c} (c - h_i) / (1 + n_c), with the samples of all ranks; no gradient goes into them. They start at
    zero and are part of the state, in float64 as everything here that adds up.

    Reference: Wen et al., "A discriminative feature learning approach for deep face recognition", ECCV 2016.

    Args:
        weight: w, what the squared distance to the centre is multiplied by.
        centre_rate: How far centres move in a step, in [0, 1].

    >>> loss, head = CenterLoss(num_classes=2, feature_dim=1, weight=2.0), torch.nn.Linear(1, 2)
    >>> _ = loss(torch.tensor([[3.0]]), torch.tensor([1]), head)
    >>> loss.centres  # half of 3 / (1 + 1)
    tensor([[0.0000],
            [0.7500]], dtype=torch.float64)
    """

    names = ("center_loss", "center")
    centres: Tensor

    def __init__(self, *sizes: Any, weight: float = 0.003, centre_rate: float = 0.5, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_number(weight, "weight", type(self).__name__, 0)
        check_number(centre_rate, "centre_rate", type(self).__name__, 0, 1)
        self.weight, self.centre_rate = weight, centre_rate
        self.register_buffer("centres", torch.zeros(self.num_classes, self.feature_dim, dtype=torch.float64))

    def extra_losses(self, batch: LossBatch) -> Tensor | None:
        if self.weight == 0:
            return None
        return 0.5 * self.weight * squared_distances(batch.features, self.centres, batch.targets)

    @torch.no_grad()
    def observe(self, batch: LossBatch) -> None:
        sums = self.centres.new_zeros(self.num_classes, self.feature_dim + 1)
        rows = torch.cat([batch.features, torch.ones_like(batch.features[:, :1])], 1).to(sums)
        all_reduce(sums.index_add_(0, batch.targets, batch.zero_ignored(rows)))
        total, count = sums[:, :-1], sums[:, -1:]
        self.centres = self.centres - self.centre_rate * (count * self.centres - total) / (1 + count)


def squared_distances(features: Tensor, centres: Tensor, targets: Tensor) -> Tensor:
    """|h_i - c_{y_i}|^2 (N,), in single precision or better: a square overflows half precision at 256."""
    with torch.autocast(features.device.type, enabled=False):
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        return (features - centres[targets].to(features)).square().sum(1)
