"""IB-IRM: IRM on features that carry no more than they must."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.domain_penalty import DomainPart, Penalty, mean_or_zero
from icda.methods.irm import IRM
from icda.ranges import NotNegative


def feature_variance(parts: Sequence[DomainPart]) -> Tensor:
    """mean_e mean_a Var(h_a): the variance over a domain's samples, unbiased, of each feature.

    A domain of a single sample has no variance and is left out.
    """
    variances = [part.features.var(dim=0).mean() for part in parts if part.has_pair]
    return mean_or_zero(variances, parts[0].features)


@METHODS.register("ib_irm")
class IBIRM(IRM):
    """IRM plus a penalty on the variance of features within a domain, as an information bottleneck.

    The penalty is `ib` times the mean variance, which stands for the entropy; its weight is 0 for `anneal_steps`, then
    `ib`. With ib=0 it is IRM.

    Reference: Ahuja et al., "Invariance principle meets information bottleneck for out-of-distribution generalization",
    NeurIPS 2021, with the figures of DomainBed.
    """

    feature_weight = "ib"

    @checked
    def __init__(self, setup: Setup, *, ib: NotNegative = 100.0, **options: Any) -> None:
        super().__init__(setup, **options)
        self.ib = ib

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        weight = self.ib if self.is_in_force(context) else 0.0
        bottleneck = {"feature_variance": Penalty(weight, feature_variance(parts))}
        return super().penalties(parts, losses, context) | bottleneck
