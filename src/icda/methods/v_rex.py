"""V-REx: losses that are equal over the domains."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.domain_penalty import AnnealedPenalty, DomainPart, Penalty
from icda.ranges import NotNegative


@METHODS.register("v_rex", "vrex")
class VREx(AnnealedPenalty):
    """Penalise the variance of the domains' losses.

    The loss is mean_e L_e + penalty * Var_e(L_e), with L_e the cross entropy of domain e in the batch; the variance is
    divided by the number of domains present. The weight jumps as in `AnnealedPenalty`.

    Reference: Krueger et al., "Out-of-distribution generalization via risk extrapolation (REx)", ICML 2021.
    """

    @checked
    def __init__(self, setup: Setup, *, penalty: NotNegative = 10.0, **options: Any) -> None:
        super().__init__(setup, penalty=penalty, **options)

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"loss_variance": Penalty(self.penalty_weight(context), losses.var(correction=0))}
