"""Every loss is a method: one forward pass, one loss, one step."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from icda.data.task import Batch
from icda.functional.mapped_variance import mean_mapped_variances
from icda.losses import AdjustedLoss
from icda.losses.augmented import StatisticsLoss
from icda.losses.head import head_parameters
from icda.methods.base import Context, Figures, Method, Setup
from icda.models.base import FeatureClassifier, Output


class LossMethod(Method):
    """Training with one of the losses; its statistics live in the method's state."""

    criterion: AdjustedLoss

    def __init__(self, criterion: AdjustedLoss) -> None:
        super().__init__()
        self.criterion = criterion
        self._figures: dict[str, float] = {}

    @classmethod
    def build(cls, loss: type[AdjustedLoss], setup: Setup, **options: Any) -> LossMethod:
        return cls(loss(setup.num_classes, setup.feature_dim, setup.class_counts, **options))

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        network.head = self.criterion.prepare_head(network.head)
        return network

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return self.criterion(output.features, batch.targets, context.head, context.progress, output.logits)

    def on_epoch_end(self, context: Context) -> None:
        """Keep the mapped variances of the epoch for the log: of little cost, and gone when training is over."""
        if isinstance(self.criterion, StatisticsLoss):
            weight, _ = head_parameters(context.head)
            mapped = mean_mapped_variances(weight.detach(), self.criterion.statistics.moments())
            self._figures = {
                f"mapped_variance_{name}": value for name, value in mapped._asdict().items() if value is not None
            }

    def epoch_figures(self) -> Figures:
        return dict(self._figures)
