"""Learning from failure (LfF): a network counts a sample more, the harder a biased twin finds it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods.base import METHODS, Batch, Context, Method, Setup, StepResult, checked
from icda.ranges import ShareAboveZero


def relative_difficulty(biased: Tensor, kept: Tensor) -> Tensor:
    """CE_b / (CE_b + CE_d) of each sample (N,): near 1 where the biased network fails and the other does not."""
    tiny = torch.finfo(biased.dtype).tiny ** 0.5  # two losses of 0 say nothing: a half
    return (biased + tiny) / (biased + kept + 2 * tiny)


@METHODS.register("lff", "learning_from_failure")
class LfF(Method):
    """Train a biased network, and beside it one that learns most from the biased network's failures.

    The biased network minimises (1 - p_y^q) / q, which learns most from what it already finds easy. The other network,
    which is kept, minimises cross entropy with weight CE_b / (CE_b + CE_d) on each sample. No group label is read.

    Reference: Nam et al., "Learning from failure", NeurIPS 2020.
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
