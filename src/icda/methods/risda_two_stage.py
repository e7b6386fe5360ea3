"""RISDA as it was published: plain training, then the head alone with the reasoning-based loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.risda import RISDALoss
from icda.functional.class_balance import effective_number_weights
from icda.methods.base import METHODS, Context, Method, Setup, Stage
from icda.models.modes import evaluating
from icda.ranks import weighted_mean
from icda.functional.confusion import count_confusions

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output


@METHODS.register("risda_two_stage")
class TwoStageRISDA(Method):
    """Cross entropy for the first four fifths of training, then a frozen encoder and weighted `RISDALoss` on the head.

    At the switch one pass over the training set gives the confusion matrix and the class statistics, so that they belong
    to the features the head will see. The head's loss is a mean weighted by the effective number of samples of a class.
    Differs from the official code, which takes the confusion matrix of the epoch with the best training accuracy, rounded
    to two decimals: here it is that of the last epoch of the first stage.

    Reference: Chen et al., AAAI 2022; schedule as in mathematics 5.1.
    """

    inner_loss = RISDALoss
    criterion: RISDALoss
    class_weights: Tensor

    def __init__(
        self, setup: Setup, *, first_stage: float = 0.8, effective_beta: float = 0.9999, **options: Any
    ) -> None:
        super().__init__()
        if not 0 < first_stage < 1:
            raise InputError(f"first_stage is a share of the epochs in (0, 1), got {first_stage}.")
        check_effective_beta(effective_beta, "effective_beta")
        self.first_stage = first_stage
        counts = setup.class_counts
        self.criterion = RISDALoss(setup.num_classes, setup.feature_dim, counts, reduction="none", **options)
        self.register_buffer("class_weights", effective_number_weights(counts, effective_beta))

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs)
        rest = [Stage(epochs - first, "head", trains="head")] if epochs > first else []
        return [Stage(first, "representation"), *rest]

    @torch.no_grad()
    def on_stage_start(self, context: Context) -> None:
        if context.stage.name != "head":
            return
        model, confusion = context.models[0], torch.zeros_like(self.criterion.confusion)
        self.criterion.statistics.reset()
        # Every rank passes over the whole training set, and statistics add up what all ranks give them.
        share = 1 / dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1.0
        with evaluating(model):
            for batch in context.training_batches():
                output = model(batch.inputs)
                shares = torch.full_like(output.features[:, 0], share)
                self.criterion.statistics.update(output.features, batch.targets, shares)
                confusion += count_confusions(output.logits.argmax(1), batch.targets, len(confusion))
        self.criterion.set_confusion(confusion)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if context.stage.name != "head":
            return F.cross_entropy(output.logits, batch.targets)
        losses = self.criterion(output.features, batch.targets, context.head, context.progress, output.logits)
        return weighted_mean(losses, self.class_weights[batch.targets].to(losses))
