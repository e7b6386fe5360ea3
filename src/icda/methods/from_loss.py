"""Every loss is a method: one forward pass, one loss, one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from icda.losses import AdjustedLoss
from icda.methods.base import Context, Method, Setup

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output


class LossMethod(Method):
    """Training with one of the losses; its statistics live in the method's state."""

    def __init__(self, criterion: AdjustedLoss) -> None:
        super().__init__()
        self.criterion = criterion

    @classmethod
    def build(cls, loss: type[AdjustedLoss], setup: Setup, **options: Any) -> LossMethod:
        return cls(loss(setup.num_classes, setup.feature_dim, setup.class_counts, **options))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return self.criterion(output.features, batch.targets, context.head, context.progress, output.logits)
