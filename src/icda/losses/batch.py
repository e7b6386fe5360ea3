"""A checked call of a loss, and what becomes of its adjusted logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from icda.losses.base import AdjustedLoss


@dataclass(frozen=True)
class LossBatch:
    """A checked call. Where a target is `ignore_index`, `valid` is False and `targets` says 0; None if all count.

    `soft` (N, C) are targets given as probabilities, `targets` then the most likely class of each sample. `attributes`
    (N,) and `log_prior` (N, C) say which prior a sample has, for losses with one.
    """

    features: Tensor
    targets: Tensor
    weight: Tensor
    bias: Tensor | None
    progress: float | Tensor
    logits: Tensor | None = None
    soft: Tensor | None = None
    valid: Tensor | None = None
    attributes: Tensor | None = None
    log_prior: Tensor | None = None

    def with_logits(self) -> LossBatch:
        """The batch with what the head says, unless logits were given."""
        if self.logits is not None:
            return self
        return replace(self, logits=F.linear(self.features, self.weight, self.bias))

    @property
    def wide_logits(self) -> Tensor:
        assert self.logits is not None
        return self.logits.float() if self.logits.dtype in (torch.float16, torch.bfloat16) else self.logits

    @property
    def is_repeated(self) -> bool:
        """Whether a backward pass is under way: a forward pass inside it is a repetition of one that was made."""
        # -1 outside; torch's own checkpointing asks the same
        return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1

    def constants(self, moves_features: bool = False) -> tuple[Tensor, Tensor, Tensor, float | Tensor, Tensor]:
        """What phi is made of: features, targets, weight, progress, and the detached logits without bias."""
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        assert self.logits is not None
        products = self.logits.detach().to(dtype)
        if self.bias is not None:
            products = products - self.bias.detach().to(dtype)
        features = self.features if moves_features else self.features.detach()
        progress = self.progress
        if torch.compiler.is_compiling():  # a tensor, so that a new value is no new graph
            progress = torch.ones((), dtype=torch.float64) * progress
        return features.to(dtype), self.targets, self.weight.to(dtype), progress, products

    def zero_ignored(self, values: Tensor) -> Tensor:
        """Values (N, ...) with zeros in the rows that do not count."""
        if self.valid is None:
            return values
        return torch.where(self.valid.view(-1, *(1,) * (values.dim() - 1)), values, 0)

    def masked(self) -> LossBatch:
        """The batch with zeros in the rows that do not count: what stands there may be anything."""
        logits = None if self.logits is None else self.zero_ignored(self.logits)
        return replace(self, features=self.zero_ignored(self.features), logits=logits)


def is_off(factor: Any) -> bool:
    """Whether a term with this factor is nothing; of a tensor nobody asks, and the term is computed.

    >>> is_off(0.0), is_off(0.5)
    (True, False)
    """
    return not isinstance(factor, Tensor) and factor == 0


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
