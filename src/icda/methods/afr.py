"""Automatic feature reweighting (AFR): the head is trained again on what the network finds hard."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, Stage, checked
from icda.methods.crt import two_stages
from icda.methods.per_sample import Keeps, label_probability, over_training_set, rows
from icda.ranges import NotNegative, OpenShare
from icda.ranks import all_reduce


@METHODS.register("afr")
class AFR(Keeps, Method):
    """Train the network, then its head alone on held-out samples, those with a badly predicted label more often.

    `held_share` of the training samples, by a coin, are not learned from in the first stage, so that p_y is not what the
    network remembers. In the second they are all that is drawn, with weight exp(-gamma p_y) / n_y, and the head is held
    back to where it was by decay |w - w_1|^2. No group label is read.

    Reference: Qiu et al., "Simple and fast group robustness by automatic feature reweighting", ICML 2023.
    """

    saved = ("weights",)
    held: Tensor
    weights: Tensor
    first_weight: Tensor
    first_bias: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        first_stage: OpenShare = 0.8,
        held_share: OpenShare = 0.2,
        gamma: NotNegative = 10.0,
        decay: NotNegative = 0.1,
    ) -> None:
        super().__init__()
        self.first_stage, self.gamma, self.decay = first_stage, gamma, decay
        draws = torch.rand(setup.num_samples, generator=generator_for(setup.seed, "afr"))
        self.keep("held", draws < held_share)
        self.keep("weights", torch.ones(setup.num_samples, dtype=torch.double))
        self.register_buffer("first_weight", torch.zeros(setup.num_classes, setup.feature_dim))
        self.register_buffer("first_bias", torch.zeros(setup.num_classes))

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("afr", epochs, self.first_stage)
        return [
            Stage(first, "representation", restart=True, loss=self.first_loss, on_end=self.weigh),
            Stage(second, "head", trains="head", sampling="own", restart=True, loss=self.second_loss),
        ]

    @torch.no_grad()
    def weigh(self, context: Context) -> None:
        """Keep the head as it is, and how hard it finds the samples that were held back."""
        weight, bias = head_parameters(context.head)
        self.first_weight.copy_(weight)
        if bias is not None:
            self.first_bias.copy_(bias)
        believed, targets = over_training_set(context, self.weights, label_probability)
        self.weights.copy_(difficulty_weights(believed, targets, self.held, self.gamma))

    def sampling_weights(self) -> Tensor:
        return self.weights.cpu()

    def first_loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        learned = rows(~self.held, batch, losses)
        size, total = all_reduce(torch.stack([learned.new_tensor(float(len(learned))), learned.sum()]))
        # The mean over the samples learned from on all ranks, once the trainer has averaged over ranks.
        return (learned * losses).mean() * size / total.clamp(min=1)

    def second_loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        weight, bias = head_parameters(context.head)
        distance = (weight - self.first_weight.to(weight)).square().sum()
        if bias is not None:
            distance = distance + (bias - self.first_bias.to(bias)).square().sum()
        return self.loss(output, batch, context) + self.decay * distance


def difficulty_weights(believed: Tensor, targets: Tensor, held: Tensor, gamma: float) -> Tensor:
    """exp(-gamma p_y) / n_y (N,) where a sample is held, n_y counting the held ones; 0 elsewhere."""
    counts = torch.bincount(targets[held], minlength=int(targets.max()) + 1).clamp(min=1)
    return torch.where(held, torch.exp(-gamma * believed) / counts[targets], 0.0)
