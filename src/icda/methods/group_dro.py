"""Methods that are given the groups: upweighting, where all count the same, and group DRO, where the worst count most."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, Figures, Method, Output, Setup, Stage, checked
from icda.ranges import NotNegative
from icda.ranks import all_reduce


@METHODS.register("group_dro", "groupdro")
class GroupDRO(Method):
    """Weight the losses of known groups, with more weight for those with a large loss.

    The loss is sum_g q_g L_g, with L_g the mean cross entropy of group g in the batch. Each step first sets q_g <- q_g
    exp(eta (L_g + adjustment / sqrt(n_g))), with an exponent of 0 for a group that the batch has none of, and divides by
    the sum. Groups are drawn equally often. q starts uniform over the groups that occur in training.

    Reference: Sagawa et al., "Distributionally robust neural networks for group shifts", ICLR 2020; mathematics 5.3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})
    q: Tensor
    adjustments: Tensor

    @checked
    def __init__(self, setup: Setup, *, eta: NotNegative = 0.01, adjustment: NotNegative = 0.0) -> None:
        super().__init__()
        assert setup.group_counts is not None, "check_needs admits no task without its groups"
        self.eta, self.adjustment = eta, adjustment
        counts, occurs = setup.group_counts, setup.group_counts > 0
        self.register_buffer("q", occurs / occurs.sum())
        self.register_buffer("adjustments", adjustment / counts.clamp(min=1).float().sqrt(), persistent=False)

    def stages(self, epochs: int) -> list[Stage]:
        return [Stage(epochs, sampling="group_balanced")]

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        assert batch.groups is not None
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        means, counts = self._group_means(losses.detach().to(self.q), batch.groups)
        exponents = self.eta * torch.where(counts > 0, means + self.adjustments, 0.0)
        # q exp(exponents) / sum, by logarithms: exp of a large loss would overflow.
        self.q.copy_(torch.softmax(self.q.log() + exponents, dim=0))
        # Written as a mean over samples, with the counts of all ranks: the trainer's average over ranks is then
        # sum_g q_g L_g of the whole batch.
        weights = self.q * counts.sum() / counts.clamp(min=1)
        return (weights[batch.groups].to(losses) * losses).mean()

    def epoch_figures(self) -> Figures:
        return {"weight_by_group": self.q.tolist()}

    def _group_means(self, losses: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss (G,), 0 where a group is absent, and number of samples (G,), over the batch of all ranks."""
        members = F.one_hot(groups, len(self.q)).to(losses)
        sums, counts = all_reduce(torch.stack([(members * losses[:, None]).sum(0), members.sum(0)]))
        return sums / counts.clamp(min=1), counts
