"""Meta-Weight-Net: sample weights learned on metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.meta.lookahead import Mode
from icda.methods.base import METHODS, Context, Setup
from icda.methods.meta_learning import MetaLearner, Outer, step_network
from icda.ranges import NotNegative, PositiveInt
from icda.results.epoch import Figure
from icda.strength import StrengthLog, StrengthNetwork

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output


@METHODS.register("meta_weight_net", "mwn")
class MetaWeightNet(MetaLearner):
    """Cross entropy weighted by a network of one hidden layer that reads each sample's loss.

    w_i = sigmoid(MLP(l_i)) with l_i detached; the network learns on metadata through a virtual SGD step. With `normalise`
    the weights of a batch are scaled to a mean of one, as in the imbalance version of the original code.

    Reference: Shu et al., "Meta-Weight-Net: learning an explicit mapping for sample weighting", NeurIPS 2019.
    Differs from the original in the meta-gradient, which is exact here too but needs no double backward.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: int = 1,
        start: float = 0.0,
        meta_batch_size: PositiveInt | None = None,
        hidden: PositiveInt = 100,
        weight_rate: NotNegative = 1e-3,
        weight_decay: NotNegative = 1e-4,
        normalise: bool = False,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start, meta_batch_size=meta_batch_size)
        self.weight_network = StrengthNetwork(1, hidden, layers=1, normalise_inputs=False)
        self.optimizer = torch.optim.Adam(self.weight_network.parameters(), lr=weight_rate, weight_decay=weight_decay)
        self.normalise = normalise
        self.log = StrengthLog(setup.num_classes, 0 if setup.group_counts is None else len(setup.group_counts))

    def weights(self, losses: Tensor) -> Tensor:
        weights = self.weight_network(losses.detach()[:, None])
        return weights * len(weights) / weights.sum().clamp(min=1e-12) if self.normalise else weights

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        weights = self.weights(F.cross_entropy(output.logits, batch.targets, reduction="none"))

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return (weights * F.cross_entropy(logits, batch.targets, reduction="none")).mean()

        return Outer(list(self.weight_network.parameters()), inner)

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        step_network(self.weight_network, self.optimizer, gradients)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        if context.progress < self.start:
            return losses.mean()
        weights = self.weights(losses).detach()
        self.log.add(weights, batch.targets, batch.groups)
        return (weights * losses).mean()

    def epoch_figures(self) -> Mapping[str, Figure]:
        return {name.replace("strength", "weight"): value for name, value in self.log.take().items()}

    def get_extra_state(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
