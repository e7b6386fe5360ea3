"""Upweighting (UW): cross entropy in which every group counts the same."""

from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, Stage, checked


@METHODS.register("uw", "upweighting")
class Upweighting(Method):
    """Cross entropy in which every known group counts the same.

    Groups are drawn equally often or, with weighting="loss", weighted by n / (G n_g), G counting the groups that occur
    in training. Both have the same expected gradient, that of the mean over groups of a group's mean loss; sampling has
    the smaller variance where a group is rare.

    Reference: the baseline of Sagawa et al., "Distributionally robust neural networks", ICLR 2020; mathematics 5.3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})
    group_weights: Tensor

    @checked
    def __init__(self, setup: Setup, *, weighting: Literal["sampling", "loss"] = "sampling") -> None:
        super().__init__()
        assert setup.group_counts is not None, "check_needs admits no task without its groups"
        self.weighting = weighting
        self.register_buffer("group_weights", balancing_weights(setup.group_counts), persistent=False)

    def stages(self, epochs: int) -> list[Stage]:
        return [Stage(epochs, sampling="group_balanced" if self.weighting == "sampling" else "uniform")]

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if self.weighting == "sampling":
            return super().loss(output, batch, context)
        assert batch.groups is not None
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        return (self.group_weights[batch.groups].to(losses) * losses).mean()


def balancing_weights(counts: Tensor) -> Tensor:
    """n / (G n_g) of each of G groups (G,); a group without samples gets 0 and is not counted in G."""
    occurs = counts > 0
    weights = counts.sum() / (occurs.sum() * counts.clamp(min=1).double())
    return (weights * occurs).float()
