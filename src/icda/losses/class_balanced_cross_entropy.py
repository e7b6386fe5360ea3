"""Class-balanced cross entropy."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from icda.functional.class_balance import effective_number_weights
from icda.losses.base import AdjustedLoss
from icda.statistics.checks import check_number


class ClassBalancedCrossEntropyLoss(AdjustedLoss):
    """Cross entropy weighted by the effective number of samples of the target's class.

    v_c = (1 - B) / (1 - B^{n_c}), scaled to sum to the number of classes; B is `effective_beta`. B = 0 is cross entropy,
    B near one weights by 1/n_c. `mean` divides by the number of samples, not by the sum of their weights.

    Reference: Cui et al., "Class-balanced loss based on effective number of samples", CVPR 2019.

    Args:
        effective_beta: B, in [0, 1).

    >>> import torch
    >>> loss = ClassBalancedCrossEntropyLoss(2, 4, torch.tensor([100, 1]), effective_beta=0.99)
    >>> loss.class_weights.round(decimals=3)
    tensor([0.0310, 1.9690], dtype=torch.float64)
    """

    names = ("class_balanced_cross_entropy", "cb_ce")
    needs_counts = reads_counts = True
    is_cross_entropy = False  # weighted by the label's class

    def __init__(self, *sizes: Any, effective_beta: float = 0.9999, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_number(effective_beta, "effective_beta", type(self).__name__, 0, 1 - 1e-12)
        self.effective_beta = effective_beta

    @property
    def class_weights(self) -> Tensor:
        """v (C,), float64; 0 for a class without samples."""
        assert self.class_counts is not None
        return effective_number_weights(self.class_counts, self.effective_beta)

    def sample_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = self.unweighted_losses(logits, targets)
        return self.class_weights[targets].to(losses) * losses

    def unweighted_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The losses (N,) that are weighted."""
        return F.cross_entropy(logits, targets, reduction="none")
