"""Methods that count samples more which a first or a biased network gets wrong, without group labels: JTT, AFR, LfF."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Batch, Context, Figures, Method, Output, Sampling, Setup, Stage, StepResult
from icda.methods.decoupling import two_stages
from icda.methods.per_sample import PerSample, label_probability, over_training_set, rows
from icda.ranges import NotNegative, OpenShare, ShareAboveZero
from icda.ranks import all_reduce
from icda.settings import checked


@METHODS.register("jtt")
class JTT(PerSample, Method):
    """Train once to find errors, then train a fresh network that sees these samples more often.

    When `first_stage` of the epochs are over, a pass over the training set in evaluation mode, without augmentation, finds
    the samples that the network gets wrong. The network goes back to the weights the run began with and learns from samples
    drawn with weight `up_weight` for an error and 1 for the others. A step's expected gradient is then that of the paper's
    upsampled training set, and no step is `up_weight` times as long as another, as it would be with weights on the losses.
    No group labels are read. With up_weight=1 the second stage is plain training.

    Reference: Liu et al., "Just Train Twice", ICML 2021. Differs from the paper in that an epoch of the second stage has as
    many samples as one of the first, drawn with replacement, and both stages share the epochs of the run.
    """

    per_sample = ("errors",)
    errors: Tensor

    @checked
    def __init__(
        self, setup: Setup, *, first_stage: OpenShare = 0.2, up_weight: Annotated[float, Ge(1)] = 20.0
    ) -> None:
        super().__init__()
        self.first_stage, self.up_weight = first_stage, up_weight
        self.keep("errors", torch.zeros(setup.num_samples, dtype=torch.bool))

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("jtt", epochs, self.first_stage)
        # Weights that are all 1 would still draw with replacement: plain training serves each sample once.
        sampling: Sampling = "own" if self.up_weight > 1 else "uniform"
        afresh: dict[str, Any] = {"sampling": sampling, "restart": True, "reset_network": True}
        return [Stage(first, "identification", on_end=self.find_errors), Stage(second, "upweighted", **afresh)]

    def find_errors(self, context: Context) -> None:
        wrong, _ = over_training_set(context, self.errors.float(), _is_wrong)
        self.errors.copy_(wrong >= 0.5)  # ranks may judge differently
        if not self.errors.any():
            warnings.warn(
                f"jtt: the network gets no training sample wrong after {context.stage.epochs} epochs, so the second "
                "stage has nothing to upweight and is plain training. A smaller first_stage stops sooner.",
                stacklevel=2,
            )

    def sampling_weights(self) -> Tensor:
        errors = self.errors.cpu()
        return torch.where(errors, self.up_weight, 1.0).double()

    def epoch_figures(self) -> Figures:
        return {"upweighted_errors": int(self.errors.sum())}


def _is_wrong(output: Output, batch: Batch) -> Tensor:
    return output.logits.argmax(1) != batch.targets


@METHODS.register("afr")
class AFR(PerSample, Method):
    """Train the network, then its head alone on held-out samples, those with a badly predicted label more often.

    Held-out samples are drawn with weight exp(-gamma p_y) / n_y.
    `held_share` of the training samples, by a coin, are not learned from in the first stage, so that p_y is not what the
    network remembers. In the second stage they are all that is drawn: more often the less the network of the first stage
    believes their label, with classes balanced. The head is held back to where it was by decay |w - w_1|^2. No group label
    is read.

    Reference: Qiu et al., "Simple and fast group robustness by automatic feature reweighting", ICML 2023. Differs from
    the paper in drawing by the weights instead of weighting one full batch, and in that the stages share the epochs; the
    paper chooses gamma and decay by validation groups.
    """

    per_sample = ("weights",)
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


def relative_difficulty(biased: Tensor, kept: Tensor) -> Tensor:
    """CE_b / (CE_b + CE_d) of each sample (N,): near 1 where the biased network fails and the other does not."""
    tiny = torch.finfo(biased.dtype).tiny ** 0.5  # two losses of 0 say nothing: a half
    return (biased + tiny) / (biased + kept + 2 * tiny)


@METHODS.register("lff", "learning_from_failure")
class LfF(Method):
    """Train a biased network, and beside it one that learns most from the biased network's failures.

    The biased network minimises (1 - p_y^q) / q, whose gradient is that of cross entropy times p_y^q: it learns most from
    what it already finds easy. The other network, which is kept, minimises cross entropy with weight CE_b / (CE_b + CE_d)
    on each sample. No group label is read.

    Reference: Nam et al., "Learning from failure", NeurIPS 2020. Differs from the official code in taking the losses of
    the present step, as the paper's algorithm does; the code smooths them over epochs and divides by a class's largest.
    """

    num_networks = 2

    @checked
    def __init__(self, setup: Setup, *, q: ShareAboveZero = 0.7) -> None:
        super().__init__()
        self.q = q

    def step(self, batch: Batch, context: Context) -> StepResult:
        kept, biased = (network(batch.inputs).logits for network in context.networks)
        losses = F.cross_entropy(kept, batch.targets, reduction="none")
        failures = F.cross_entropy(biased.detach(), batch.targets, reduction="none")
        weights = relative_difficulty(failures, losses.detach())
        loss = (weights * losses).mean()
        context.apply(loss + generalized_cross_entropy(biased, batch.targets, self.q).mean())
        return StepResult(loss.detach(), kept.detach(), {"weight": float(weights.mean())})
