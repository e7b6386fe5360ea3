"""RISDA as it was published: plain training, then the head alone with the reasoning-based loss."""

from typing import Any

import torch
from torch import Tensor

from icda.functional.class_balance import effective_number_weights
from icda.functional.confusion import count_confusions
from icda.losses.risda import RISDALoss
from icda.methods.base import METHODS, Batch, Context, Method, Setup, Stage, checked
from icda.methods.per_sample import weighted_mean
from icda.models.base import Output, evaluating
from icda.ranges import OpenShare, ShareBelowOne
from icda.ranks import world_size


@METHODS.register("risda_two_stage")
class TwoStageRISDA(Method):
    """Cross entropy for four fifths of training, then class-balanced `RISDALoss` on the head, encoder frozen.

    At the switch one pass over the training set gives the confusion matrix and the class statistics, so that they belong
    to the features the head will see. The head's loss is a mean weighted by the effective number of samples of a class.

    Reference: Chen et al., AAAI 2022; schedule as in mathematics 5.1.
    """

    inner_loss = RISDALoss
    criterion: RISDALoss
    class_weights: Tensor

    @checked
    def __init__(
        self, setup: Setup, *, first_stage: OpenShare = 0.8, effective_beta: ShareBelowOne = 0.9999, **options: Any
    ) -> None:
        super().__init__()
        self.first_stage = first_stage
        counts = setup.class_counts
        self.criterion = RISDALoss(setup.num_classes, setup.feature_dim, counts, reduction="none", **options)
        self.register_buffer("class_weights", effective_number_weights(counts, effective_beta))

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs)
        head = Stage(epochs - first, "head", trains="head", on_start=self.look, loss=self.head_loss)
        return [Stage(first, "representation"), *([head] if epochs > first else [])]

    @torch.no_grad()
    def look(self, context: Context) -> None:
        """Confusions and statistics of the features as they will stay."""
        model, confusion = context.models[0], torch.zeros_like(self.criterion.confusion)
        self.criterion.statistics.reset()
        # Every rank passes over the whole training set, and statistics add up what all ranks give them.
        with evaluating(model):
            for batch in context.training_batches():
                output = model(batch.inputs)
                shares = torch.full_like(output.features[:, 0], 1 / world_size())
                self.criterion.statistics.update(output.features, batch.targets, shares)
                confusion += count_confusions(output.logits.argmax(1), batch.targets, len(confusion))
        self.criterion.set_confusion(confusion)

    def head_loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = self.criterion(output.features, batch.targets, context.head, context.progress, output.logits)
        return weighted_mean(losses, self.class_weights[batch.targets].to(losses))
