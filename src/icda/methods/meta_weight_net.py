"""Meta-Weight-Net: sample weights learned on metadata."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.meta.strength_network import StrengthLog, StrengthNetwork
from icda.methods.base import METHODS, Batch, Context, Figures, Output, Setup, checked
from icda.methods.meta_learning import MetaLearner, Outer
from icda.methods.per_sample import Keeps
from icda.ranges import NotNegative, PositiveInt

RECIPES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "noise": (torch.optim.Adam, {"lr": 1e-3, "weight_decay": 1e-4}),
    "long_tail": (torch.optim.SGD, {"lr": 1e-5, "weight_decay": 5e-4, "momentum": 0.9, "nesterov": True}),
}


@METHODS.register("meta_weight_net", "mwn")
class MetaWeightNet(Keeps, MetaLearner):
    """Weight samples by a small network that reads each loss, learned on metadata.

    w_i = sigmoid(MLP(l_i)); the network learns on metadata through a virtual SGD step. With `normalise` the weights of a
    batch are scaled to a mean of one. The authors published two recipes. "noise": l_i is detached, and the network
    learns by Adam, 1e-3. "long_tail": l_i is not detached in the virtual step, weights are always normalised, and the
    network learns by SGD, 1e-5, with Nesterov momentum 0.9. `weight_rate` and `weight_decay` are the recipe's where not
    given.

    Reference: Shu et al., "Meta-Weight-Net: learning an explicit mapping for sample weighting", NeurIPS 2019.
    """

    saved = ("optimizer",)

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        hidden: PositiveInt = 100,
        recipe: Literal["noise", "long_tail"] = "noise",
        weight_rate: NotNegative | None = None,
        weight_decay: NotNegative | None = None,
        normalise: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.weight_network = StrengthNetwork(1, hidden, layers=1, normalise_inputs=False)
        given = {"lr": weight_rate, "weight_decay": weight_decay}
        kind, usual = RECIPES[recipe]
        settings = {**usual, **{name: value for name, value in given.items() if value is not None}}
        self.optimizer = kind(self.weight_network.parameters(), **settings)
        self.recipe, self.normalise = recipe, normalise or recipe == "long_tail"
        self.log = StrengthLog(setup.num_classes, 0 if setup.group_counts is None else len(setup.group_counts))

    def weights(self, losses: Tensor) -> Tensor:
        """Weights (N,) of samples; where `losses` carry a gradient, so do the weights."""
        weights = self.weight_network(losses[:, None])
        return weights * len(weights) / weights.sum().clamp(min=1e-12) if self.normalise else weights

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        now = F.cross_entropy(output.logits, batch.targets, reduction="none").detach()

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            losses = F.cross_entropy(logits, batch.targets, reduction="none")
            return (self.weights(losses if self.recipe == "long_tail" else now) * losses).mean()

        return Outer(list(self.weight_network.parameters()), inner)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        if context.progress < self.start:
            return losses.mean()
        weights = self.weights(losses.detach()).detach()
        self.log.add(weights, batch.targets, batch.groups)
        return (weights * losses).mean()

    def epoch_figures(self) -> Figures:
        return {name.replace("strength", "weight"): value for name, value in self.log.take().items()}
