"""Automatic feature reweighting (AFR): the head is trained again on what the network finds hard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.errors import InputError
from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Context, Method, Setup, Stage
from icda.methods.crt import check_first_stage, two_stages
from icda.ranks import all_mean, all_reduce

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output

SECOND = "head"


@METHODS.register("afr")
class AFR(Method):
    """Cross entropy on most of the samples; then the head alone, on the others, drawn by exp(-gamma p_y) / n_y.

    `held_share` of the training samples, by a coin, are not learned from in the first stage, so that p_y is not what the
    network remembers. In the second stage they are all that is drawn: more often the less the network of the first stage
    believes their label, with classes balanced. The head is held back to where it was by decay |w - w_1|^2. No group label
    is read.

    Reference: Qiu et al., "Simple and fast group robustness by automatic feature reweighting", ICML 2023. Differs from
    the paper in drawing by the weights instead of weighting one full batch, and in that the stages share the epochs; the
    paper chooses gamma and decay by validation groups.

    >>> setup = Setup(2, 4, torch.tensor([6, 2]), epochs=10, num_samples=8)
    >>> [(stage.name, stage.epochs) for stage in AFR(setup).stages(10)]
    [('representation', 8), ('head', 2)]
    """

    held: Tensor
    weights: Tensor
    first_weight: Tensor
    first_bias: Tensor

    def __init__(
        self,
        setup: Setup,
        *,
        first_stage: float = 0.8,
        held_share: float = 0.2,
        gamma: float = 10.0,
        decay: float = 0.1,
    ) -> None:
        super().__init__()
        check_first_stage(first_stage)
        if not 0 < held_share < 1:
            raise InputError(f"held_share is a share of the training samples in (0, 1), got {held_share}.")
        for name, value in (("gamma", gamma), ("decay", decay)):
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} is a finite number, 0 or more, got {value}.")
        self.first_stage, self.gamma, self.decay = first_stage, gamma, decay
        draws = torch.rand(setup.num_samples, generator=generator_for(setup.seed, "afr"))
        self.register_buffer("held", draws < held_share, persistent=False)
        self.register_buffer("weights", torch.ones(setup.num_samples, dtype=torch.double), persistent=False)
        self.register_buffer("first_weight", torch.zeros(setup.num_classes, setup.feature_dim))
        self.register_buffer("first_bias", torch.zeros(setup.num_classes))

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("afr", epochs, self.first_stage)
        return [
            Stage(first, "representation", restart=True),
            Stage(second, SECOND, trains="head", sampling="own", restart=True),
        ]

    @torch.no_grad()
    def on_epoch_end(self, context: Context) -> None:
        # Not at the start of the second stage: a run that resumes there does not start it again.
        if context.stage.name == SECOND or context.epoch + 1 < context.stage.epochs:
            return
        weight, bias = head_parameters(context.head)
        self.first_weight.copy_(weight)
        if bias is not None:
            self.first_bias.copy_(bias)
        self.weights.copy_(self._difficulties(context))

    def sampling_weights(self) -> Tensor:
        return self.weights.cpu()

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        if context.stage.name == SECOND:
            return losses.mean() + self.decay * self._distance(context)
        learned = (~self.held[batch.index.to(self.held.device)]).to(losses)
        size, total = all_reduce(torch.stack([learned.new_tensor(float(len(learned))), learned.sum()]))
        # The mean over the samples learned from on all ranks, once the trainer has averaged over ranks.
        return (learned * losses).mean() * size / total.clamp(min=1)

    def _distance(self, context: Context) -> Tensor:
        weight, bias = head_parameters(context.head)
        distance = (weight - self.first_weight.to(weight)).square().sum()
        return distance if bias is None else distance + (bias - self.first_bias.to(bias)).square().sum()

    def _difficulties(self, context: Context) -> Tensor:
        """exp(-gamma p_y) / n_y of the samples held back, 0 of the others; the same on all ranks."""
        model, believed = context.models[0], torch.zeros(len(self.held), dtype=torch.double, device=self.held.device)
        targets = torch.zeros(len(self.held), dtype=torch.long, device=self.held.device)
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        for batch in context.training_batches():
            probabilities = model(batch.inputs).logits.double().softmax(1)
            believed[batch.index] = probabilities.gather(1, batch.targets[:, None])[:, 0]
            targets[batch.index] = batch.targets
        for module, training in modes:
            module.training = training
        believed = all_mean(believed)  # BatchNorm's running figures differ between ranks
        return difficulty_weights(believed, targets, self.held, self.gamma)

    def get_extra_state(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.weights = state["weights"].to(self.weights.device)


def difficulty_weights(believed: Tensor, targets: Tensor, held: Tensor, gamma: float) -> Tensor:
    """exp(-gamma p_y) / n_y (N,) where a sample is held, n_y counting the held ones; 0 elsewhere.

    >>> held = torch.tensor([True, True, True, False])
    >>> difficulty_weights(torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.tensor([0, 1, 1, 1]), held, gamma=0.0)
    tensor([1.0000, 0.5000, 0.5000, 0.0000])
    """
    counts = torch.bincount(targets[held], minlength=int(targets.max()) + 1).clamp(min=1)
    return torch.where(held, torch.exp(-gamma * believed) / counts[targets], 0.0)
