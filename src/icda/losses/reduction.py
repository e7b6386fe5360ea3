"""From adjusted logits to the loss, as `reduction`, `class_weight` and `ignore_index` ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from icda.losses.base import AdjustedLoss
    from icda.losses.inputs import LossBatch


def reduce_losses(loss: AdjustedLoss, adjusted: Tensor, batch: LossBatch, extra: Tensor | None = None) -> Tensor:
    """Cross entropy of the adjusted logits, or what the loss has in its place, plus `extra` of each sample (N,)."""
    if loss.is_cross_entropy:
        labels = batch.targets if batch.valid is None else torch.where(batch.valid, batch.targets, loss.ignore_index)
        value = F.cross_entropy(
            adjusted,
            labels if batch.soft is None else batch.soft.to(adjusted),
            None if loss.class_weight is None else loss.class_weight.to(adjusted),
            ignore_index=loss.ignore_index,
            reduction=loss.reduction,
            label_smoothing=loss.label_smoothing,
        )
    else:
        value = _reduce(loss, loss.sample_losses(adjusted, batch.targets), batch)  # type: ignore[operator]
    return value if extra is None else value + _reduce(loss, extra, batch)


def _reduce(loss: AdjustedLoss, losses: Tensor, batch: LossBatch) -> Tensor:
    """Losses of samples (N,), weighted by `class_weight` as cross entropy would be."""
    weights = torch.ones_like(losses) if loss.class_weight is None else loss.class_weight[batch.targets].to(losses)
    if batch.valid is not None:
        losses, weights = torch.where(batch.valid, losses, 0), weights * batch.valid
    if loss.reduction == "none":
        return losses * weights
    total = (losses * weights).sum()
    return total if loss.reduction == "sum" else total / weights.sum()
