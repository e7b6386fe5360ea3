"""Co-teaching: two networks, each taught by what the other finds easy."""

from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, StepResult
from icda.methods.small_loss import SmallLossPair, smallest


@METHODS.register("co_teaching")
class CoTeaching(SmallLossPair):
    """Train two networks, each on the samples that the other finds easiest, to resist wrong labels.

    Each network picks its (1 - R) N samples of smallest cross entropy, and the other learns from them. R ramps from 0 to
    `noise_rate` over `ramp_epochs`; with noise_rate=0 they are two networks of plain cross entropy.

    Reference: Han et al., "Co-teaching: robust training of deep neural networks with extremely noisy labels", NeurIPS
    2018.
    """

    def step(self, batch: Batch, context: Context) -> StepResult:
        logits = [network(batch.inputs).logits for network in context.networks]
        first, second = (F.cross_entropy(answer, batch.targets, reduction="none") for answer in logits)
        rate = self.drop_rate(context.epoch)
        taught_first, taught_second = smallest(second, rate), smallest(first, rate)
        own = first[taught_first].mean()
        context.apply(own + second[taught_second].mean())
        return StepResult(own.detach(), logits[0].detach(), {"drop_rate": rate})
