"""Reasoning-based implicit semantic data augmentation (RISDA)."""

from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.augmentation import risda_adjustment
from icda.losses.augmented import StatisticsLoss
from icda.losses.batch import LossBatch, is_off
from icda.ranks import all_reduce
from icda.statistics.checks import check_flags, check_number


class RISDALoss(StatisticsLoss):
    """ISDA with means and covariances borrowed from classes that are easily confused.

    It is the cross entropy of z_c + (b/2) d_c^T Sigma~_y d_c + a d_c.mu~_y.
    K is the row-normalised confusion matrix of the training data: Sigma~_y = sum_j K_{y,j} Sigma_j and mu~_y = sum_j
    K_{y,j} mu_j - mu_y; the `head_classes` most frequent classes keep their own covariance. a = mean_strength * progress
    and b = lambda0 * progress. K is counted from the predictions the loss sees in train mode, over the whole of training;
    the method `risda_two_stage` sets it once from a full pass (`set_confusion`), as the official schedule does.

    Reference: Chen et al., "Imagine by reasoning: a reasoning-based implicit semantic data augmentation for long-tailed
    classification", AAAI 2022. Differs from the official code in that nothing is written back by default.

    Args:
        mean_strength: Of the means, at the end of training.
        head_classes: How many of the most frequent classes keep their own covariance.
        write_back: Whether mixed covariances are written back into the running ones at each step, as the released code
            does, so that classes other than `head_classes` lose their own bit by bit (mathematics 5.1).

    >>> loss, head = RISDALoss(num_classes=3, feature_dim=4), torch.nn.Linear(4, 3)
    >>> loss(torch.randn(8, 4), torch.arange(8) % 3, head, progress=0.5).shape
    torch.Size([])
    """

    names = ("risda",)
    confusion: Tensor
    keeps_own: Tensor
    confusion_is_set: Tensor

    def __init__(
        self,
        *sizes: Any,
        lambda0: float = 0.5,
        mean_strength: float = 1.0,
        head_classes: int = 0,
        write_back: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, lambda0=lambda0, **options)
        check_number(mean_strength, "mean_strength", "RISDALoss", 0)
        check_number(head_classes, "head_classes", "RISDALoss", 0, self.num_classes, whole=True)
        if head_classes and self.class_counts is None:
            raise InputError("RISDALoss needs class_counts to know which are the head_classes.")
        self.mean_strength, self.write_back = mean_strength, write_back
        check_flags(self, "write_back")
        if write_back and self.statistics.kind == "low_rank":
            raise InputError(
                "RISDALoss: write_back needs full or diagonal covariances; low_rank ones have no room for it."
            )
        keeps_own = torch.zeros(self.num_classes, dtype=torch.bool)
        if head_classes and self.class_counts is not None:
            keeps_own[self.class_counts.argsort(descending=True, stable=True)[:head_classes]] = True
        self.register_buffer("keeps_own", keeps_own)
        table = torch.zeros(self.num_classes, self.num_classes, dtype=torch.float64)
        self.register_buffer("confusion", table)
        self.register_buffer("confusion_is_set", torch.tensor(False))

    def observe(self, batch: LossBatch) -> None:
        super().observe(batch)
        counted = torch.where(self.confusion_is_set, 0.0, torch.ones_like(batch.targets, dtype=torch.float64))
        pairs = batch.targets * self.num_classes + batch.wide_logits.detach().argmax(1)
        table = torch.zeros_like(self.confusion).view(-1).index_add(0, pairs, batch.zero_ignored(counted))
        self.confusion += all_reduce(table.view_as(self.confusion))
        if self.write_back:
            self._write_back()

    @torch.no_grad()
    def _write_back(self) -> None:
        """Sigma_y becomes its mixture in the running state; a class not seen yet keeps none."""
        scatter, mixing = self.statistics.scatter, self._mixing().to(self.statistics.scatter)
        counts = self.statistics.count.to(mixing).view(-1, *(1,) * (scatter.dim() - 1))
        scatter.copy_(torch.tensordot(mixing, scatter / counts.clamp(min=1e-12), 1) * counts)

    def set_confusion(self, confusion: Tensor) -> None:
        """Fix K from counts or rates (C, C), rows being true classes; from here on it is no longer counted."""
        if confusion.shape != self.confusion.shape or not ((confusion >= 0) & torch.isfinite(confusion)).all():
            raise InputError(f"confusion must be {tuple(self.confusion.shape)}, finite and not negative.")
        self.confusion.copy_(confusion)
        self.confusion_is_set.fill_(True)

    def relations(self) -> Tensor:
        """K (C, C), rows summing to one; a class not seen yet is related to itself alone."""
        total = self.confusion.sum(1, keepdim=True)
        return torch.where(total > 0, self.confusion / total.clamp(min=1e-300), self._identity())

    def _mixing(self) -> Tensor:
        return torch.where(self.keeps_own[:, None], self._identity(), self.relations())

    def _identity(self) -> Tensor:
        return torch.eye(self.num_classes, dtype=torch.float64, device=self.confusion.device)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: Any, products: Tensor
    ) -> Tensor | None:
        if is_off(progress):
            return None
        mixing = self._identity() if self.write_back else self._mixing()  # what was written back is mixed already
        strengths = self.lambda0 * progress, self.mean_strength * progress
        tables = self.relations().to(weight), mixing.to(weight)
        return risda_adjustment(weight, targets, self.statistics.moments(), *strengths, *tables, self.variance_bound)
