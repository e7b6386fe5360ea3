"""Learning from failure (LfF): a network counts a sample more, the harder a biased twin finds it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods.base import METHODS, Batch, Context, Method, Setup, StepResult, checked
from icda.methods.per_sample import Keeps, rows, write_rows
from icda.ranges import ShareAboveZero, ShareBelowOne


def relative_difficulty(biased: Tensor, kept: Tensor) -> Tensor:
    """CE_b / (CE_b + CE_d) of each sample (N,): near 1 where the biased network fails and the other does not."""
    tiny = torch.finfo(biased.dtype).tiny ** 0.5  # two losses of 0 say nothing: a half
    return (biased + tiny) / (biased + kept + 2 * tiny)


@METHODS.register("lff", "learning_from_failure")
class LfF(Keeps, Method):
    """Train a biased network, and beside it one that learns most from the biased network's failures.

    The biased network minimises (1 - p_y^q) / q, which learns most from what it already finds easy. The other network,
    which is kept, minimises cross entropy with weight CE_b / (CE_b + CE_d) on each sample. Here each sample's losses are
    running means over epochs (`smoothing` of the mean before) and shares of the largest of its class: otherwise, where
    classes are uneven, the kept network predicts the rare one for everything. No group label is read.

    Reference: Nam et al., "Learning from failure", NeurIPS 2020, with what its authors' code adds.
    """

    num_networks = 2
    saved = ("running", "classes")
    running: Tensor
    classes: Tensor

    @checked
    def __init__(self, setup: Setup, *, q: ShareAboveZero = 0.7, smoothing: ShareBelowOne = 0.7) -> None:
        super().__init__()
        self.q, self.smoothing, self.num_classes = q, smoothing, setup.num_classes
        self.keep("running", torch.zeros(setup.num_samples, 2))  # CE_b and CE_d; 0 until a sample is seen
        self.keep("classes", torch.zeros(setup.num_samples, dtype=torch.long))

    def step(self, batch: Batch, context: Context) -> StepResult:
        kept, biased = (network(batch.inputs).logits for network in context.networks)
        losses = F.cross_entropy(kept, batch.targets, reduction="none")
        failures = F.cross_entropy(biased.detach(), batch.targets, reduction="none")
        weights = relative_difficulty(*self.compared(torch.stack([failures, losses.detach()], 1), batch).unbind(1))
        loss = (weights * losses).mean()
        context.apply(loss + generalized_cross_entropy(biased, batch.targets, self.q).mean())
        return StepResult(loss.detach(), kept.detach(), {"weight": float(weights.mean())})

    def compared(self, losses: Tensor, batch: Batch) -> Tensor:
        """Running means of a batch's losses (N, 2), as shares of the largest of all samples of the same class."""
        before = rows(self.running, batch, losses)
        means = torch.where(before > 0, torch.lerp(losses, before, self.smoothing), losses)
        write_rows(self.running, batch.index, means)
        write_rows(self.classes, batch.index, batch.targets)
        places = self.classes[:, None].expand_as(self.running)
        largest = self.running.new_zeros(self.num_classes, 2).scatter_reduce_(0, places, self.running, "amax")
        return means / largest[batch.targets].to(means).clamp(min=torch.finfo(means.dtype).tiny)
