"""What all losses share: the call, the checks, the reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.terms.head import Head, check_head, head_parameters
from icda.losses.terms.prior import check_counted
from icda.ranges import check_options
from icda.registry import Registry
from icda.signature import full_signature
from icda.statistics.checks import check_features, check_num_classes, check_targets
from icda.statistics.precision import keep_precision

LOSSES: Registry[type[AdjustedLoss]] = Registry("loss", "icda.losses", "icda.losses", type)
Reduction = Literal["none", "mean", "sum"]


class AdjustedLoss(nn.Module):
    """Cross entropy of adjusted logits: softmax CE of z + phi.

    A subclass writes `compute_adjustment`, the (N, C) tensor phi; the base class checks arguments, computes the logits
    if they are not given, and reduces. Inference never needs the loss: predict with the plain logits.
    """

    class_counts: Tensor | None
    needs_counts: ClassVar[bool] = False  # whether there is no such loss without class_counts
    moves_features: ClassVar[bool] = False  # whether the gradient of phi reaches the features

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_num_classes(num_classes, self.owner)
        if reduction not in ("none", "mean", "sum"):
            raise InputError(f"reduction must be none, mean or sum, got {reduction!r}.")
        self.num_classes, self.feature_dim, self.reduction = num_classes, feature_dim, reduction
        if self.needs_counts and class_counts is None:
            raise InputError(f"{self.owner} needs class_counts: the number of training samples of each class.")
        counts = None if class_counts is None else check_counts(class_counts, num_classes, self.owner)
        self.register_buffer("class_counts", counts)

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Options are checked against the ranges in their annotations, whoever makes the loss."""
        check_options(cls, options)
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = full_signature(cls)  # type: ignore[attr-defined]

    @property
    def owner(self) -> str:
        return type(self).__name__

    @property
    def reads_counts(self) -> bool:
        """Whether class_counts enter the loss, so that a sample of an uncounted class is an error."""
        return False

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        head: Head,
        progress: float = 1.0,
        logits: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch; `progress` is t/T in [0, 1], `logits` spares computing head(features) again."""
        weight, bias, targets = self._check(features, targets, head, progress, logits)
        return self._loss(features, targets, weight, bias, progress, logits)

    def adjustment(
        self, features: Tensor, targets: Tensor, head: Head, progress: float = 1.0, logits: Tensor | None = None
    ) -> Tensor:
        """phi (N, C), zero at the target; reads the statistics and leaves them as they are."""
        weight, bias, targets = self._check(features, targets, head, progress, logits)
        if logits is None:
            logits = F.linear(features, weight, bias)
        adjustment = self._adjust(features, targets, weight, bias, progress, logits)
        return torch.zeros_like(logits) if adjustment is None else adjustment

    def observe(self, features: Tensor, targets: Tensor, logits: Tensor) -> None:
        """Called first in train mode: fold the batch into whatever the loss keeps."""

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        """phi (N, C), or None for no adjustment. `products` are the detached logits without bias."""
        return None

    def reduce(self, adjusted: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(adjusted, targets, reduction=self.reduction)

    def reduce_samples(self, losses: Tensor) -> Tensor:
        """The losses of single samples (N,) as `reduction` asks, for a `reduce` that is not cross entropy."""
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def prepare_head(self, head: nn.Module) -> nn.Module:
        """The head to train and predict with, for a loss that needs another than a plain linear one."""
        return head

    def _loss(
        self,
        features: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        progress: float,
        logits: Tensor | None,
        **given: Tensor | None,
    ) -> Tensor:
        """The loss of a checked batch; `given` are arguments that `compute_adjustment` of a subclass has besides."""
        if logits is None:
            logits = F.linear(features, weight, bias)
        if self.training:
            self.observe(features, targets, logits)
        adjustment = self._adjust(features, targets, weight, bias, progress, logits, **given)
        adjusted = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        if adjustment is not None:
            adjusted = adjusted + adjustment
        return self.reduce(adjusted, targets)

    def _check(
        self, features: Tensor, targets: Tensor, head: Head, progress: float, logits: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """All that can be wrong with a call, found before anything is updated."""
        weight, bias = head_parameters(head)
        check_head(weight, bias, self.num_classes, self.feature_dim, self.owner)
        check_features(features, self.feature_dim, self.owner)
        targets = check_targets(targets, len(features), self.num_classes, self.owner)
        if not 0 <= progress <= 1:
            raise InputError(f"progress is t/T in [0, 1], got {progress}.")
        if logits is not None and logits.shape != (len(features), self.num_classes):
            shape = (len(features), self.num_classes)
            raise InputError(f"{self.owner} expects logits of shape {shape}, got {tuple(logits.shape)}.")
        self._check_counts(targets)
        return weight, bias, targets

    def _check_counts(self, targets: Tensor) -> None:
        if self.reads_counts and self.class_counts is not None:
            check_counted(self.class_counts, targets)

    def _adjust(
        self,
        features: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        progress: float,
        logits: Tensor,
        **given: Tensor | None,
    ) -> Tensor | None:
        with torch.autocast(features.device.type, enabled=False):
            dtype = torch.promote_types(weight.dtype, torch.float32)
            products = logits.detach().to(dtype)
            if bias is not None:
                products = products - bias.detach().to(dtype)
            features = features if self.moves_features else features.detach()
            return self.compute_adjustment(features.to(dtype), targets, weight.to(dtype), progress, products, **given)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> AdjustedLoss:
        """Counts stay in float64 whatever the model is cast to: half precision cannot count past 2048."""
        own = [name for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()]
        floors = dict.fromkeys(own, torch.float64)
        keep_precision(self, lambda: super(AdjustedLoss, self)._apply(fn, recurse), floors)
        return self

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}, reduction={self.reduction!r}"


def check_counts(class_counts: Any, num_classes: int, owner: str) -> Tensor:
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    if counts.shape != (num_classes,):
        raise InputError(f"{owner} expects class_counts of shape ({num_classes},), got {tuple(counts.shape)}.")
    if not torch.isfinite(counts).all() or (counts < 0).any() or counts.sum() == 0:
        raise InputError(f"{owner} expects class_counts that are finite, not negative and not all zero.")
    return counts
