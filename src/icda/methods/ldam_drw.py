"""LDAM with deferred re-weighting (LDAM-DRW)."""

from typing import Any

from torch import Tensor

from icda.functional.class_balance import effective_number_weights
from icda.losses.ldam import LDAMLoss
from icda.methods.base import METHODS, Batch, Context, Output, Setup, checked
from icda.methods.create import LossMethod
from icda.methods.per_sample import weighted_mean
from icda.ranges import Share, ShareBelowOne


@METHODS.register("ldam_drw")
class LDAMDRW(LossMethod):
    """LDAM with class weights (effective number of samples) in the last part of training, from `start` on.

    Until then all classes weigh the same. Weights are divided by their mean over the batch, over all ranks, as
    `torch.nn.CrossEntropyLoss(weight=...)` does. The head is a `CosineHead`. Options not listed are those of `LDAMLoss`.

    Reference: Cao et al., NeurIPS 2019, with start 160 of 200 epochs and B = 0.9999.
    """

    inner_loss = LDAMLoss
    class_weights: Tensor

    @checked
    def __init__(
        self, setup: Setup, *, start: Share = 0.8, effective_beta: ShareBelowOne = 0.9999, **options: Any
    ) -> None:
        counts = setup.class_counts
        super().__init__(LDAMLoss(setup.num_classes, setup.feature_dim, counts, reduction="none", **options))
        self.start = start
        self.register_buffer("class_weights", effective_number_weights(counts, effective_beta))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = super().loss(output, batch, context)
        if context.progress < self.start:
            return losses.mean()
        return weighted_mean(losses, self.class_weights[batch.targets].to(losses))
