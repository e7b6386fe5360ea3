"""MetaSAug: ISDA with covariances learned on metadata."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from icda.functional.class_balance import effective_number_weights
from icda.losses.isda import ISDALoss
from icda.meta.lookahead import Mode
from icda.meta.moments import normalised, symmetrised, with_values
from icda.methods.base import METHODS, Batch, Context, Output, Setup, checked
from icda.methods.meta_learning import MetaLearner, Outer
from icda.methods.per_sample import weighted_mean
from icda.ranges import NotNegative, PositiveInt, Share, ShareBelowOne
from icda.statistics import Moments


@METHODS.register("metasaug")
class MetaSAug(MetaLearner):
    """Class-balanced ISDA with covariances corrected on metadata, after a first part of plain training.

    Until `start` it is cross entropy and keeps no statistics; then each iteration steps the covariances along the exact
    meta-gradient and uses them for that iteration. Class weights are those of the effective number of samples, in a
    weighted mean. Options not listed are those of `ISDALoss`.

    Reference: Li et al., "MetaSAug: meta semantic augmentation for long-tailed visual recognition", CVPR 2021.
    """

    inner_loss = ISDALoss
    criterion: ISDALoss
    weights: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.8,
        meta_batch_size: PositiveInt | None = None,
        statistics_rate: NotNegative = 0.1,
        effective_beta: ShareBelowOne = 0.9999,
        **options: Any,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start, meta_batch_size=meta_batch_size)
        self.criterion = ISDALoss(setup.num_classes, setup.feature_dim, setup.class_counts, **options)
        self.statistics_rate = statistics_rate
        self.register_buffer("weights", effective_number_weights(setup.class_counts, effective_beta))
        self._corrected: Moments | None = None

    def observe(self, output: Output, batch: Batch, context: Context) -> None:
        self._corrected = None
        if context.progress >= self.start:
            self.criterion.statistics.update(output.features, batch.targets)

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        running = self.criterion.statistics.moments()
        mean, *parts = normalised(running)
        leaves = [part.detach().clone().requires_grad_() for part in parts]
        moments = with_values(running, [mean, *leaves])

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return self._loss(logits, weight, batch.targets, context.progress, moments)

        return Outer(leaves, inner)

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        running = self.criterion.statistics.moments()
        stepped = [(t - self.statistics_rate * g).detach() for t, g in zip(tensors, gradients, strict=True)]
        self._corrected = symmetrised(with_values(running, [running.mean, *stepped]))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if context.progress < self.start:
            return F.cross_entropy(output.logits, batch.targets)
        weight = context.head_weight
        moments = self._corrected or self.criterion.statistics.moments()
        return self._loss(output.logits, weight, batch.targets, context.progress, moments)

    def _loss(self, logits: Tensor, weight: Tensor, targets: Tensor, progress: float, moments: Moments) -> Tensor:
        adjustment = self.criterion.own_variance(targets, weight, progress, moments)
        adjusted = logits if adjustment is None else logits + adjustment
        losses = F.cross_entropy(adjusted, targets, reduction="none")
        return weighted_mean(losses, self.weights.to(losses)[targets])
