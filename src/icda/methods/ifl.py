"""Invariant feature learning (IFL): the samples a network finds hard, drawn more often within each class."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses import LOSSES
from icda.losses.center_loss import squared_distances
from icda.methods.base import METHODS, Batch, Context, Figures, Inputs, Output, Setup, StepResult, checked
from icda.methods.create import LossMethod
from icda.methods.per_sample import Keeps, class_sums, label_probability, over_training_set
from icda.ranges import NotNegative, Share

FLOOR = 1e-5  # of a sample's score: even the easiest can be drawn
SMALLEST_CLASS = 5  # below it a fifth of a class is no sample


@METHODS.register("ifl", "invariant_feature_learning")
class IFL(Keeps, LossMethod):
    """Draw hard samples of each class more often, and pull features of hard and easy ones to one centre.

    Each step joins a uniform batch and one of the second environment: loss = logit adjustment (balanced softmax), or
    cross entropy, of both + w |h - c_y|^2. At each of `milestones`, shares of the training, the second environment is
    made again from p_y of every training sample (`environment_weights`) and w goes on to the next of `centre_weights`;
    before the first it is uniform, too. Centres move by SGD of rate `centre_rate` on the mean distance while w > 0.
    Needs no group labels.

    Reference: Tang et al., "Invariant feature learning for generalized long-tailed classification", ECCV 2022.
    """

    saved = ("weights",)
    centres: Tensor
    weights: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        loss: Literal["logit_adjustment", "cross_entropy"] = "logit_adjustment",
        milestones: Sequence[Share] = (0.6, 0.8),
        centre_weights: Sequence[NotNegative] = (0.0, 0.001, 0.005),
        centre_rate: Share = 0.5,
        ratio: Annotated[float, Gt(1)] = 4.0,
        balanced_classes: bool = True,
    ) -> None:
        if list(milestones) != sorted(milestones) or len(centre_weights) != len(milestones) + 1:
            raise InputError(
                "milestones rise, and centre_weights are one before the first and one from each on, got "
                f"milestones {milestones} and centre_weights {centre_weights}."
            )
        super().__init__(LOSSES.get(loss)(setup.num_classes, setup.feature_dim, setup.class_counts))
        self.milestones = tuple(round(share * setup.epochs) for share in milestones)
        self.centre_weights, self.centre_rate = tuple(centre_weights), centre_rate
        self.ratio, self.balanced_classes = ratio, balanced_classes
        self._distance: float | None = None
        self.register_buffer("centres", torch.zeros(setup.num_classes, setup.feature_dim, dtype=torch.float64))
        self.keep("weights", torch.ones(setup.num_samples, dtype=torch.float64))

    def centre_weight(self, epoch: int) -> float:
        """w in an epoch: the next one from each milestone on."""
        return self.centre_weights[sum(epoch >= milestone for milestone in self.milestones)]

    def sampling_weights(self) -> Tensor:
        return self.weights.cpu()

    def on_epoch_start(self, context: Context) -> None:
        if context.epoch in self.milestones:
            probabilities, targets = over_training_set(context, self.weights, label_probability)
            self.weights = environment_weights(probabilities, targets, self.ratio, self.balanced_classes)

    def step(self, batch: Batch, context: Context) -> StepResult:
        if context.draw is None:
            raise InputError("ifl draws a second batch each step: give the context a draw(), as icda's trainer does.")
        both = join_batches(batch, context.draw("own"))
        output = context.network(both.inputs)
        loss = self.loss(output, both, context)
        context.apply(loss)
        extra = {} if self._distance is None else {"centre_distance": self._distance}
        return StepResult(loss.detach(), output.logits[: batch.num_samples].detach(), extra)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        value, weight = super().loss(output, batch, context), self.centre_weight(context.epoch)
        self._distance = None
        if weight == 0:  # the centres stand still, as in the public code, whose gradient is zero then
            return value
        distance = squared_distances(output.features, self.centres, batch.targets).mean()
        self._distance = float(distance.detach())
        self.move_centres(output.features, batch.targets)
        return value + weight * distance

    @torch.no_grad()
    def move_centres(self, features: Tensor, targets: Tensor) -> None:
        """c <- c - rate * d/dc mean_i |h_i - c_{y_i}|^2, over the samples of all ranks."""
        total, count = class_sums(features, targets, self.centres)
        self.centres = self.centres - 2 * self.centre_rate * (count * self.centres - total) / count.sum()

    def epoch_figures(self) -> Figures:
        """How many equally likely samples the second environment is worth, as a share of the training set."""
        shares = self.weights / self.weights.sum()
        worth = 1 / (shares.square().sum() * len(shares))
        return {**super().epoch_figures(), "second_environment_share": float(worth)}


def environment_weights(
    probabilities: Tensor, targets: Tensor, ratio: float = 4.0, balanced_classes: bool = True
) -> Tensor:
    """Weights (N,) that draw samples of a class the more often the less the network believes their labels.

    Within a class of five samples or more the score is (1 - p)^e, p being p_y scaled to [0, 1] over the class, and e =
    log(ratio) / log(t), clamped to [1, 10], where t is the mean 1 - p of the hardest fifth of the class over that of the
    other four fifths. Smaller classes are drawn uniformly. Each class weighs the same, or, without `balanced_classes`,
    as much as it has samples.
    """
    weights = torch.zeros(len(targets), dtype=torch.float64, device=probabilities.device)
    for label in targets.unique():
        members = (targets == label).nonzero().flatten()
        scores = _hardness(probabilities[members].double(), ratio)
        weights[members] = scores / scores.sum() * (1 if balanced_classes else len(members))
    return weights


def _hardness(probabilities: Tensor, ratio: float) -> Tensor:
    count = len(probabilities)
    if count < SMALLEST_CLASS:
        return torch.ones_like(probabilities)
    scaled = probabilities - probabilities.min()
    scores = 1 - scaled / (scaled.max() + 1e-9) + FLOOR
    ordered = scores.sort().values
    hardest, others = ordered[count - count // 5 :].mean(), ordered[: count * 4 // 5].mean()
    imbalance = float(hardest / others)
    exponent = math.log(ratio) / math.log(imbalance) if imbalance > 1 else math.inf
    return scores ** min(max(exponent, 1.0), 10.0)


def join_batches(first: Batch, second: Batch) -> Batch:
    """Two batches as one; of texts the shorter are padded with zeros, which the attention mask leaves out."""
    targets, index = torch.cat([first.targets, second.targets]), torch.cat([first.index, second.index])
    return Batch(_join_inputs(first.inputs, second.inputs), targets, None, index)


def _join_inputs(first: Inputs, second: Inputs) -> Inputs:
    if not isinstance(first, dict):
        return torch.cat([first, second])
    joined = {}
    for name, value in first.items():
        length = max(value.shape[1], second[name].shape[1])
        joined[name] = torch.cat([F.pad(part, (0, length - part.shape[1])) for part in (value, second[name])])
    return joined
