"""Deep CORAL: features whose mean and covariance are those of every domain."""

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.domain_penalty import DomainPart, DomainPenalty, Penalty
from icda.methods.domains import DomainSampling
from icda.ranges import NotNegative


def mean_squared_difference(moments: Sequence[Tensor]) -> Tensor:
    """Mean over pairs of tensors of the mean squared difference of their entries; 0 where there is no pair.

    The mean of (x_a - x_b)^2 over all pairs is twice the unbiased variance of x, so the pairs need not be formed.
    """
    if len(moments) < 2:
        return moments[0].new_zeros(()) if moments else torch.zeros(())
    centre = sum(moments[1:], start=moments[0]) / len(moments)
    # Not torch.var over the stacked tensors: along so short a dimension it takes twenty times as long.
    squares = torch.stack([(moment - centre).square().mean() for moment in moments])
    return 2 * squares.sum() / (len(moments) - 1)


def correlation_alignment(parts: Sequence[DomainPart]) -> Tensor:
    """Mean over pairs of domains of the mean squared difference of feature means (A,) and of covariances (A, A).

    Covariances are unbiased. A domain of a single sample has a mean and no covariance: it is left out of the second term.
    """
    means = [part.features.mean(0) for part in parts]
    covariances = [_covariance(part.features) for part in parts if part.has_pair]
    return mean_squared_difference(means) + mean_squared_difference(covariances).to(means[0])


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred.T @ centred / (len(features) - 1)


@METHODS.register("coral", "deep_coral")
class CORAL(DomainPenalty):
    """Align the means and covariances of the features of all domains.

    The loss is mean_e L_e + gamma * mean over pairs of domains of the squared differences of means and covariances, both
    means over their entries, A and A^2 of them. gamma=0 is the mean of the domains' cross entropies.

    Reference: Sun and Saenko, "Deep CORAL", ECCV 2016 workshops, in DomainBed's form.
    """

    feature_weight = "gamma"

    @checked
    def __init__(self, setup: Setup, *, gamma: NotNegative = 1.0, sampling: DomainSampling = "domain_balanced") -> None:
        super().__init__(setup, sampling)
        self.gamma = gamma

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"alignment_penalty": Penalty(self.gamma, correlation_alignment(parts))}
