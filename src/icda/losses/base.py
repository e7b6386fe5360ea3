"""What all losses share: the call, in the order check, update, compute."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from icda.losses.batch import LossBatch, reduce_losses
from icda.losses.inputs import Counts, Reduction, check_call, check_counts, check_settings
from icda.signature import ShowsOptions
from icda.statistics.class_statistics import KeepsPrecision


class AdjustedLoss(ShowsOptions, KeepsPrecision):
    """Cross entropy of adjusted logits, softmax CE of z + phi; a subclass writes phi as `compute_adjustment`.

    In `train()` mode, while gradients are on, a call first folds the batch into whatever the loss keeps, then computes;
    else it only computes. A call that is refused changes nothing. Inference needs no loss: predict with the plain logits.

    Args:
        num_classes: Number of classes C.
        feature_dim: Number of features A, the width of the head's input.
        class_counts: Training samples of each class (C,); None means balanced classes.
        reduction: "mean", "sum" or "none", as in `torch.nn.functional.cross_entropy`.
        ignore_index: Label of samples that take no part, neither in the loss nor in statistics.
        label_smoothing: As in `cross_entropy`, in [0, 1).
        class_weight: As `weight` of `cross_entropy` (C,).
        validate: Whether values are looked at, which takes one read from the device; kinds and shapes always are.
    """

    class_counts: Tensor | None
    class_weight: Tensor | None
    names: ClassVar[tuple[str, ...]] = ()  # by which `--method` and `LOSSES` know it
    needs_counts: ClassVar[bool] = False  # whether there is no such loss without class_counts
    reads_counts: ClassVar[bool] = False  # whether a target of a class without samples is an error
    moves_features: ClassVar[bool] = False  # whether the gradient of phi reaches the features
    is_cross_entropy: ClassVar[bool] = True  # else a subclass writes `sample_losses(logits, targets)` (N,)

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Counts = None,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        class_weight: Counts = None,
        validate: bool = True,
        **unknown: Any,
    ) -> None:
        super().__init__()
        self.num_classes, self.feature_dim, self.reduction = num_classes, feature_dim, reduction
        self.ignore_index, self.label_smoothing, self.validate = ignore_index, label_smoothing, validate
        check_settings(self, class_counts, unknown)
        self.register_buffer("class_counts", check_counts(self, class_counts, "class_counts"))
        self.register_buffer("class_weight", check_counts(self, class_weight, "class_weight"), persistent=False)

    def forward(
        self, features: Tensor, targets: Tensor, head: Any = None, progress: Any = 1.0, logits: Any = None, **prior: Any
    ) -> Tensor:
        """The loss of a batch.

        Args:
            features: (N, A), the input of the head.
            targets: Labels (N,), or probabilities (N, C); of those the likeliest class joins the statistics.
            head: The last layer: an `nn.Linear`, a 1x1 `nn.Conv2d`, or (weight, bias).
            progress: How far training has come, t/T in [0, 1].
            logits: head(features) (N, C), where it is computed already.
            **prior: `attributes` (N,) or `log_prior` (N, C), for a loss with a prior (`PriorLoss`).

        Returns:
            The mean or the sum (), or with reduction "none" the loss of each sample (N,).
        """
        return self.loss(check_call(self, features, targets, head, progress, logits, **prior))

    def adjustment(self, features: Tensor, targets: Tensor, head: Any, *call: Any, **options: Any) -> Tensor:
        """phi (N, C) of a call, zero at the target; reads the statistics and leaves them as they are."""
        batch = self.prepare(check_call(self, features, targets, head, *call, **options)).with_logits()
        phi = self.compute_phi(batch)
        return torch.zeros_like(batch.wide_logits) if phi is None else batch.zero_ignored(phi)

    def loss(self, batch: LossBatch) -> Tensor:
        batch = self.prepare(batch)
        extra = self.extra_losses(batch)
        if self.training and torch.is_grad_enabled() and not batch.is_repeated:
            self.observe(batch)
        return reduce_losses(self, self.adjusted(batch), batch, extra)

    def adjusted(self, batch: LossBatch) -> Tensor:
        return batch.wide_logits if (phi := self.compute_phi(batch)) is None else batch.wide_logits + phi

    def compute_phi(self, batch: LossBatch) -> Tensor | None:
        with torch.autocast(batch.features.device.type, enabled=False):
            return self.compute_adjustment(*batch.constants(self.moves_features))

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: Any, products: Tensor
    ) -> Tensor | None:
        """phi (N, C), or None for no adjustment. `products` are the detached logits without bias."""

    def prepare(self, batch: LossBatch) -> LossBatch:
        """The batch with its logits, for a loss that has others than the head's."""
        return batch.with_logits()

    def observe(self, batch: LossBatch) -> None:
        """Fold the batch into whatever the loss keeps."""

    def extra_losses(self, batch: LossBatch) -> Tensor | None:
        """What is added to the loss of each sample (N,), computed before the batch is folded in."""

    def prepare_head(self, head: nn.Module) -> nn.Module:
        """The head to train and predict with, for a loss that needs another than a plain linear one."""
        return head

    def counts_read(self, batch: LossBatch) -> Tensor | None:
        """Counts (C,) that must not be zero for a target's class."""
        return self.class_counts if self.reads_counts else None
