"""What all losses share: the call, the checks, the reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError, InputTypeError
from icda.losses.terms.batch import LossBatch, check_batch, check_values, spread_rows
from icda.losses.terms.head import Head
from icda.losses.terms.prior import check_counted
from icda.losses.terms.progress import check_progress, traced_progress
from icda.ranges import RangesChecked
from icda.registry import Registry
from icda.signature import check_kinds, full_signature
from icda.statistics.checks import (
    ORDINARY,
    check_device,
    check_feature_dim,
    check_num_classes,
    check_whole_number,
)
from icda.statistics.precision import keep_precision
from icda.statistics.rollback import Rollback, holds_only_finite_values

LOSSES: Registry[type[AdjustedLoss]] = Registry("loss", "icda.losses", "icda.losses", type)
Reduction = Literal["none", "mean", "sum"]


class LossOptions(TypedDict, total=False):
    """What every loss can be made with; they mean what they mean to torch's cross_entropy."""

    reduction: Reduction
    ignore_index: int
    label_smoothing: float
    class_weight: Tensor | None


class AdjustedLoss(nn.Module, metaclass=RangesChecked):
    """Cross entropy of adjusted logits: softmax CE of z + phi.

    A subclass writes `compute_adjustment`, the (N, C) tensor phi; the base class checks arguments, computes the logits
    if they are not given, and reduces. Inference never needs the loss: predict with the plain logits.

    `reduction`, `ignore_index`, `label_smoothing` and `class_weight` (C,) are those of `torch.nn.functional.cross_entropy`.
    A sample whose target is `ignore_index` takes no part: not in the loss, not in statistics. Targets may be probabilities
    (N, C): the most likely class then says which phi a sample has and which statistics it joins.

    In `train()` mode a call first folds the batch into whatever the loss keeps (class statistics, centres, a count of
    steps), then computes; in `eval()` mode it only computes. A call that is refused changes nothing in either, nor does
    the second pass of `torch.utils.checkpoint`.
    """

    class_counts: Tensor | None
    class_weight: Tensor | None
    needs_counts: ClassVar[bool] = False  # whether there is no such loss without class_counts
    moves_features: ClassVar[bool] = False  # whether the gradient of phi reaches the features
    squares_weights: ClassVar[bool] = False  # whether phi grows with the square of the head's weights
    may_be_infinite: ClassVar[tuple[str, ...]] = ("variance_bound",)
    is_cross_entropy: ClassVar[bool] = True  # whether `reduce` is cross entropy, for which soft targets have a meaning

    _is_wide = False  # whether a batch of huge values was folded in

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_num_classes(num_classes, self.owner)
        check_feature_dim(feature_dim, self.owner)
        check_whole_number(ignore_index, "ignore_index", self.owner)
        if reduction not in ("none", "mean", "sum"):
            raise InputError(f"reduction must be none, mean or sum, got {reduction!r}.")
        if not 0 <= label_smoothing < 1:
            raise InputError(f"label_smoothing must lie in [0, 1), got {label_smoothing}.")
        if label_smoothing > 0 and not self.is_cross_entropy:
            raise InputError(f"{self.owner} is no cross entropy, so that label_smoothing has no meaning for it.")
        self.num_classes, self.feature_dim, self.reduction = num_classes, feature_dim, reduction
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        if self.needs_counts and class_counts is None:
            raise InputError(f"{self.owner} needs class_counts: the number of training samples of each class.")
        counts = None if class_counts is None else check_counts(class_counts, num_classes, self.owner)
        self.register_buffer("class_counts", counts)
        weights = None if class_weight is None else check_counts(class_weight, num_classes, self.owner, "class_weight")
        self.register_buffer("class_weight", weights, persistent=False)
        self.register_load_state_dict_post_hook(_look_at_state)

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Options are of the kinds of their defaults, whoever makes the loss."""
        check_kinds(cls.__signature__, options, cls.__name__, cls.may_be_infinite, finite=False)  # type: ignore[attr-defined]
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

    @property
    def folds(self) -> bool:
        """Whether a call takes its batch in: in train mode, but not when `torch.utils.checkpoint` runs it again."""
        return self.training and (torch.compiler.is_compiling() or not within_backward())

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        head: Head,
        progress: float = 1.0,
        logits: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch; `progress` is t/T in [0, 1], `logits` spares computing head(features) again."""
        batch = self._check(features, targets, head, progress, logits)
        return self._loss(batch, progress)

    def adjustment(
        self, features: Tensor, targets: Tensor, head: Head, progress: float = 1.0, logits: Tensor | None = None
    ) -> Tensor:
        """phi (N, C), zero at the target; reads the statistics and leaves them as they are."""
        return self._adjustment(self._check(features, targets, head, progress, logits), progress)

    def observe(self, features: Tensor, targets: Tensor, logits: Tensor) -> None:
        """Called first in train mode: fold the batch into whatever the loss keeps."""

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        """phi (N, C), or None for no adjustment. `products` are the detached logits without bias."""
        return None

    def extra_loss(self, features: Tensor, targets: Tensor, logits: Tensor) -> Tensor | None:
        """What is added to the reduced loss, computed before the batch is folded in."""
        return None

    def reduce(self, adjusted: Tensor, targets: Tensor) -> Tensor:
        """`targets` are labels (N,), or probabilities (N, C) where the loss is cross entropy."""
        weight = None if self.class_weight is None else self.class_weight.to(adjusted)
        return F.cross_entropy(
            adjusted, targets, weight, reduction=self.reduction, label_smoothing=self.label_smoothing
        )

    def reduce_samples(self, losses: Tensor, targets: Tensor | None = None) -> Tensor:
        """The losses of single samples (N,) as `reduction` asks, for a `reduce` that is not cross entropy.

        With `targets` they are weighted by `class_weight`, as cross entropy would be.
        """
        if self.class_weight is None or targets is None:
            if self.reduction == "none":
                return losses
            return losses.mean() if self.reduction == "mean" else losses.sum()
        weights = self.class_weight[targets].to(losses)
        if self.reduction == "none":
            return losses * weights
        total = (losses * weights).sum()
        return total if self.reduction == "sum" else total / weights.sum()

    def prepare_head(self, head: nn.Module) -> nn.Module:
        """The head to train and predict with, for a loss that needs another than a plain linear one."""
        return head

    def _loss(self, batch: LossBatch, progress: float, **given: Tensor | None) -> Tensor:
        """The loss of a checked batch; `given` are arguments that `compute_adjustment` of a subclass has besides."""
        logits = F.linear(batch.features, batch.weight, batch.bias) if batch.logits is None else batch.logits
        return self._judged(batch, logits, lambda: self._compute(batch, progress, logits, **given))

    def _compute(self, batch: LossBatch, progress: float, logits: Tensor, **given: Tensor | None) -> Tensor:
        extra = self.extra_loss(batch.features, batch.targets, logits)
        if self.folds:
            self.observe(batch.features, batch.targets, logits)
        adjustment = self._adjust(batch, progress, logits, **given)
        adjusted = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        if adjustment is not None:
            adjusted = adjusted + adjustment
        value = self._reduce(adjusted, batch)
        return value if extra is None else value + extra

    def _reduce(self, adjusted: Tensor, batch: LossBatch) -> Tensor:
        return self.reduce(adjusted, batch.targets if batch.soft is None else batch.soft.to(adjusted))

    def _adjustment(self, batch: LossBatch, progress: float, **given: Tensor | None) -> Tensor:
        logits = F.linear(batch.features, batch.weight, batch.bias) if batch.logits is None else batch.logits
        compiles = torch.compiler.is_compiling()
        is_huge = not compiles and check_values(batch, logits, self.owner, self.squares_weights)
        adjustment = self._adjust(batch, progress, logits, **given)
        value = torch.zeros_like(logits) if adjustment is None else adjustment
        if (is_huge or (self._is_wide and not compiles)) and not (value < torch.inf).all():  # -inf rules a class out
            raise InputError(
                f"the adjustment of {self.owner} would be NaN or infinite: features or weights are too large."
            )
        return spread_rows(value, batch)

    def _check(
        self, features: Tensor, targets: Tensor, head: Head, progress: float, logits: Tensor | None
    ) -> LossBatch:
        """All that can be wrong with types, shapes and labels, found before anything is updated."""
        batch = check_batch(
            features,
            targets,
            head,
            logits,
            num_classes=self.num_classes,
            feature_dim=self.feature_dim,
            ignore_index=self.ignore_index,
            owner=self.owner,
        )
        check_progress(progress)
        if torch.compiler.is_compiling():
            batch = self._check_compiled(batch, progress)
        state = next(self.buffers(), None)
        if state is not None:
            check_device(state, "the loss's own state", batch.features.device, self.owner)
        if batch.soft is not None and not self.is_cross_entropy:
            raise InputTypeError(
                f"{self.owner} is no cross entropy: it expects integer class labels, not soft targets."
            )
        self._check_counts(batch.targets)
        return batch

    def _check_compiled(self, batch: LossBatch, progress: Any) -> LossBatch:
        from icda.losses.terms.operators import labels  # registers operators, which only a graph needs

        ignored = self.ignore_index if batch.soft is None else -1
        return batch._replace(
            targets=labels(batch.targets, traced_progress(progress), self.num_classes, ignored, self.owner)
        )

    def _check_counts(self, targets: Tensor) -> None:
        if self.reads_counts and self.class_counts is not None:
            check_counted(self.class_counts, targets)

    def _judged(self, batch: LossBatch, logits: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """The value of `compute`, once values are checked; where the outcome is in doubt it is looked at as well."""
        if torch.compiler.is_compiling():
            return spread_rows(compute(), batch)
        is_huge = check_values(batch, logits, self.owner, self.squares_weights)
        if not (is_huge or self._is_wide or self._may_be_infinite(batch)):
            return spread_rows(compute(), batch)
        before = Rollback(self)
        try:
            value = compute()
            if not (torch.isfinite(value.detach()).all() and holds_only_finite_values(self)):
                raise InputError(
                    f"the value of {self.owner} would be NaN or infinite: features, logits or weights are too large, or a "
                    "target is on a class that is masked, has no samples or has weight 0. Nothing was updated."
                )
        except BaseException:
            before.restore()
            raise
        self._is_wide = self._is_wide or (is_huge and self.training)
        return spread_rows(value, batch)

    def _may_be_infinite(self, batch: LossBatch) -> bool:
        """Whether a target may lie on a class that the prior rules out, or all on classes of weight zero."""
        shares = batch.soft is not None or self.label_smoothing > 0
        return (shares and self.reads_counts) or self.class_weight is not None

    def _adjust(self, batch: LossBatch, progress: float, logits: Tensor, **given: Tensor | None) -> Tensor | None:
        features, weight, bias = batch.features, batch.weight, batch.bias
        with torch.autocast(features.device.type, enabled=False):
            dtype = torch.promote_types(weight.dtype, torch.float32)
            products = logits.detach().to(dtype)
            if bias is not None:
                products = products - bias.detach().to(dtype)
            features = features if self.moves_features else features.detach()
            return self.compute_adjustment(
                features.to(dtype), batch.targets, weight.to(dtype), traced_progress(progress), products, **given
            )

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> AdjustedLoss:
        """Counts stay in float64 whatever the model is cast to: half precision cannot count past 2048."""
        own = [name for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()]
        floors = dict.fromkeys(own, torch.float64)
        keep_precision(self, lambda: super(AdjustedLoss, self)._apply(fn, recurse), floors)
        return self

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}, reduction={self.reduction!r}"


AdjustedLoss.__signature__ = full_signature(AdjustedLoss)  # type: ignore[attr-defined]


def _look_at_state(loss: Any, _: Any) -> None:
    """State that was loaded may hold the traces of huge features."""
    buffers = [buffer for buffer in loss.buffers() if buffer.is_floating_point() and buffer.numel()]
    loss._is_wide = any(float(buffer.abs().max()) > ORDINARY**2 for buffer in buffers)


def within_backward() -> bool:
    """Whether a backward pass is under way: a forward pass inside it is a repetition of one that was made."""
    return torch._C._current_graph_task_id() != -1  # -1 outside; torch's own checkpointing asks the same


def check_counts(class_counts: Any, num_classes: int, owner: str, name: str = "class_counts") -> Tensor:
    try:
        counts = torch.as_tensor(class_counts).to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        given = type(class_counts).__name__
        raise InputTypeError(f"{owner} expects {name} as {num_classes} numbers, got {given}: {error}.") from error
    if counts.shape != (num_classes,):
        raise InputError(f"{owner} expects {name} of shape ({num_classes},), got {tuple(counts.shape)}.")
    if not torch.isfinite(counts).all() or (counts < 0).any() or counts.sum() == 0:
        raise InputError(f"{owner} expects {name} that are finite, not negative and not all zero.")
    return counts
