"""IRM: one classifier that is the best for every domain at once."""

from collections.abc import Sequence

from torch import Tensor

from icda.methods.base import METHODS, Context
from icda.methods.domain_penalty import AnnealedPenalty, DomainPart, Penalty, mean_or_zero


def scale_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """d CE(s z) / ds at s = 1: mean_i sum_c (p_ic - y_ic) z_ic, with p = softmax(z) and y one-hot.

    It is zero where no factor before the logits (N, C) would lower the loss. Being written out, it is differentiated
    once and needs no double backward.
    """
    own = logits.gather(1, targets[:, None])
    return (logits.softmax(1) * (logits - own)).sum(1).mean()


def invariance_penalty(parts: Sequence[DomainPart]) -> Tensor:
    """mean_e g_e g'_e, with g and g' the scale gradients of every other sample of domain e and of the rest.

    The product of two halves has the square of the expected gradient as its mean; the square of one gradient would have
    its variance on top. A domain of a single sample has no halves and is left out.
    """
    products = [
        scale_gradient(part.logits[::2], part.targets[::2]) * scale_gradient(part.logits[1::2], part.targets[1::2])
        for part in parts
        if part.has_pair
    ]
    return mean_or_zero(products, parts[0].logits)


@METHODS.register("irm")
class IRM(AnnealedPenalty):
    """Penalise domains that would prefer logits of another scale.

    The loss is mean_e L_e + penalty * mean_e (d L_e(s z) / ds at s = 1)^2 over domains e. The square is estimated
    without bias from two half batches, so it may be negative in a batch. The weight jumps as in `AnnealedPenalty`.

    Reference: Arjovsky et al., "Invariant risk minimization", 2019 (IRMv1), with the figures of DomainBed.
    """

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"invariance_penalty": Penalty(self.penalty_weight(context), invariance_penalty(parts))}
