"""Reasoning-based implicit semantic data augmentation (RISDA)."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.augmented import StatisticsLoss, StatisticsOptions
from icda.losses.base import LOSSES
from icda.losses.terms.augmentation import distinct_labels, variance_term
from icda.losses.terms.progress import is_off
from icda.ranges import NotNegative
from icda.ranks import all_reduce
from icda.statistics.confusion import count_confusions


@LOSSES.register("risda")
class RISDALoss(StatisticsLoss):
    """Cross entropy of z_c + (b/2) d_c^T Sigma~_y d_c + a d_c.mu~_y, with statistics borrowed from confusable classes.

    K is the row-normalised confusion matrix of the training data: Sigma~_y = sum_j K_{y,j} Sigma_j and mu~_y = sum_j
    K_{y,j} mu_j - mu_y; the `head_classes` most frequent classes keep their own covariance. a = mean_strength * progress
    and b = lambda0 * progress. K is counted from the predictions the loss sees in train mode, over the whole of training;
    the method `risda_two_stage` sets it once from a full pass (`set_confusion`), as the official schedule does.

    The released code writes the mixed covariances back into the running ones at each step, so that classes other than
    `head_classes` lose their own bit by bit (mathematics 5.1). `write_back=True` does so too, from the first step on.

    Reference: Chen et al., "Imagine by reasoning: a reasoning-based implicit semantic data augmentation for long-tailed
    classification", AAAI 2022. Differs from the official code in that nothing is written back by default.

    >>> loss, head = RISDALoss(num_classes=3, feature_dim=4), torch.nn.Linear(4, 3)
    >>> loss(torch.randn(8, 4), torch.arange(8) % 3, head, progress=0.5).shape
    torch.Size([])
    """

    confusion: Tensor
    keeps_own: Tensor
    confusion_is_set: Tensor

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        lambda0: NotNegative = 0.5,
        mean_strength: NotNegative = 1.0,
        head_classes: int = 0,
        write_back: bool = False,
        **options: Unpack[StatisticsOptions],
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, lambda0=lambda0, **options)
        if head_classes and class_counts is None:
            raise InputError("RISDALoss needs class_counts to know which are the head_classes.")
        if not 0 <= head_classes <= num_classes:
            raise InputError(f"head_classes must lie in 0..{num_classes}, got {head_classes}.")
        if not math.isfinite(mean_strength):
            raise InputError(f"mean_strength must be finite, got {mean_strength}.")
        if write_back and self.statistics.kind == "low_rank":
            raise InputError(
                "RISDALoss: write_back needs full or diagonal covariances, low_rank ones have no room for it."
            )
        self.mean_strength, self.write_back = mean_strength, write_back
        keeps_own = torch.zeros(num_classes, dtype=torch.bool)
        if head_classes:
            keeps_own[torch.as_tensor(class_counts).argsort(descending=True, stable=True)[:head_classes]] = True
        self.register_buffer("keeps_own", keeps_own)
        self.register_buffer("confusion", torch.zeros(num_classes, num_classes, dtype=torch.float64))
        self.register_buffer("confusion_is_set", torch.tensor(False))

    def observe(self, features: Tensor, targets: Tensor, logits: Tensor) -> None:
        super().observe(features, targets, logits)
        if (
            torch.compiler.is_compiling()
        ):  # which cannot ask whether it is set, nor count into a table of unknown length
            pairs = targets * self.num_classes + logits.detach().argmax(1)
            rows = torch.where(self.confusion_is_set, 0, torch.ones_like(pairs, dtype=torch.float64))
            counted = torch.zeros_like(self.confusion).view(-1).index_add(0, pairs, rows)
            self.confusion += all_reduce(counted.view_as(self.confusion))
        elif not self.confusion_is_set:
            self.confusion += all_reduce(count_confusions(logits.detach().argmax(1), targets, self.num_classes))

        if self.write_back:
            self._write_back()

    @torch.no_grad()
    def _write_back(self) -> None:
        """Sigma_y becomes its mixture in the running state; a class not seen yet keeps none."""
        statistics = self.statistics
        own = torch.eye(self.num_classes, dtype=torch.float64, device=self.confusion.device)
        mixing = torch.where(self.keeps_own[:, None], own, self.relations()).to(statistics.scatter)
        counts = statistics.count.to(mixing).view(-1, *(1,) * (statistics.scatter.dim() - 1))
        covariances = statistics.scatter / counts.clamp(min=1e-12)
        statistics.scatter.copy_(torch.tensordot(mixing, covariances, 1) * counts)

    def set_confusion(self, confusion: Tensor) -> None:
        """Fix K from counts or rates (C, C), rows being true classes; from here on it is no longer counted."""
        if confusion.shape != self.confusion.shape or not ((confusion >= 0) & torch.isfinite(confusion)).all():
            raise InputError(f"confusion must be {tuple(self.confusion.shape)}, finite and not negative.")
        self.confusion.copy_(confusion)
        self.confusion_is_set.fill_(True)

    def relations(self) -> Tensor:
        """K (C, C), rows summing to one; a class not seen yet is related to itself alone."""
        total = self.confusion.sum(1, keepdim=True)
        identity = torch.eye(self.num_classes, dtype=torch.float64, device=total.device)
        return torch.where(total > 0, self.confusion / total.clamp(min=1e-300), identity)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        if is_off(progress):
            return None
        labels, inverse = distinct_labels(targets, self.num_classes)
        relations = self.relations()[labels].to(weight)
        own = F.one_hot(labels, self.num_classes).to(weight)
        moments = self.statistics.moments().to(weight.dtype)
        keeps = self.keeps_own[labels][:, None] | self.write_back  # what was written back is mixed already
        mixing = torch.where(keeps, own, relations)
        spread = variance_term(weight, labels, mixing, moments, self.lambda0 * progress, bound=self.variance_bound)
        shift = (relations - own) @ moments.mean  # mu~ (labels, A)
        moved = shift @ weight.T - (shift * weight[labels]).sum(1, keepdim=True)
        moved = moved.scatter(1, labels[:, None], 0)
        return (spread + self.mean_strength * progress * moved)[inverse]
