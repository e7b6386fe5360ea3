"""JoCoR: two networks trained as one, on what they agree about."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, Setup, StepResult, checked
from icda.methods.small_loss import SmallLossPair, smallest
from icda.ranges import ShareBelowOne


def joint_losses(first: Tensor, second: Tensor, targets: Tensor, agreement: float) -> Tensor:
    """(1 - k) (CE_1 + CE_2) + k (KL(p_1 | p_2) + KL(p_2 | p_1)) of each sample (N,); gradients reach both logits."""
    one, two = F.log_softmax(first, 1), F.log_softmax(second, 1)
    labels = F.nll_loss(one, targets, reduction="none") + F.nll_loss(two, targets, reduction="none")
    divergence = ((one.exp() - two.exp()) * (one - two)).sum(1)  # both directions of KL in one sum
    return (1 - agreement) * labels + agreement * divergence


@METHODS.register("jocor")
class JoCoR(SmallLossPair):
    """Train two networks together on the samples with the smallest joint loss: cross entropy plus disagreement.

    A step uses the (1 - R) N samples of smallest loss; R ramps from 0 to `noise_rate` over `ramp_epochs`. Disagreement
    (`agreement` k) both regularises and picks. With agreement=0 and noise_rate=0 they are two networks of plain cross
    entropy.

    Reference: Wei et al., "Combating noisy labels by agreement: a joint training method with co-regularization", CVPR
    2020.
    """

    @checked
    def __init__(self, setup: Setup, *, agreement: ShareBelowOne = 0.1, **options: Any) -> None:
        super().__init__(setup, **options)
        self.agreement = agreement

    def step(self, batch: Batch, context: Context) -> StepResult:
        first, second = (network(batch.inputs).logits for network in context.networks)
        losses = joint_losses(first, second, batch.targets, self.agreement)
        rate = self.drop_rate(context.epoch)
        loss = losses[smallest(losses, rate)].mean()
        context.apply(loss)
        return StepResult(loss.detach(), first.detach(), {"drop_rate": rate})
