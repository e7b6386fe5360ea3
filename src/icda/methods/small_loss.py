"""Two networks that trust samples of small loss: co-teaching and JoCoR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Inputs, Method, Setup, StepResult, checked
from icda.ranges import NotNegativeInt, ShareBelowOne


def smallest(losses: Tensor, rate: float) -> Tensor:
    """Positions of the (1 - rate) N smallest losses, at least one, in the order of the batch."""
    kept = max(1, int((1 - rate) * len(losses) + 1e-9))  # (1 - 0.9) 10 is 0.9999...
    return losses.detach().argsort(stable=True)[:kept].sort().values


class SmallLossPair(Method):
    """Two networks that train on samples of small loss: the ramp of the share dropped, and who answers at test time.

    `noise_rate` is the share of wrong labels as far as the user knows it; true labels are never read. It is reached after
    `ramp_epochs`. The first network predicts, at the cost of any other method; `ensemble` takes the mean of both softmaxes.
    """

    num_networks = 2

    @checked
    def __init__(
        self, setup: Setup, *, noise_rate: ShareBelowOne = 0.2, ramp_epochs: NotNegativeInt = 10, ensemble: bool = False
    ) -> None:
        super().__init__()
        self.noise_rate, self.ramp_epochs, self.ensemble = noise_rate, ramp_epochs, ensemble

    def drop_rate(self, epoch: int) -> float:
        """R(e) = noise_rate min(e / ramp_epochs, 1): networks learn what is clean first, so all is kept at first."""
        return self.noise_rate * min(epoch / self.ramp_epochs, 1.0) if self.ramp_epochs else self.noise_rate

    def predict(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor:
        if not self.ensemble:
            return models[0](inputs).logits
        answers: list[Any] = [model(inputs).logits.log_softmax(1) for model in models]
        return torch.stack(answers).logsumexp(0) - torch.tensor(float(len(answers))).log().item()


@METHODS.register("co_teaching")
class CoTeaching(SmallLossPair):
    """Train two networks, each on the samples that the other finds easiest, to resist wrong labels.

    Each network picks its (1 - R) N samples of smallest cross entropy, and the other learns from them.
    The two start differently, so they err on different wrong labels and do not confirm each other's errors. R ramps from
    0 to `noise_rate` over `ramp_epochs`. The networks share no weight: their losses are added, and each gets its own
    gradient. With noise_rate=0 they are two networks of plain cross entropy.

    Reference: Han et al., "Co-teaching: robust training of deep neural networks with extremely noisy labels", NeurIPS
    2018. Differs from the official code in dividing by the number of kept samples once (theirs does it twice), in
    leaving Adam's beta1 alone, and in the ramp, which is full at epoch `ramp_epochs` (theirs one earlier).
    """

    def step(self, batch: Batch, context: Context) -> StepResult:
        logits = [network(batch.inputs).logits for network in context.networks]
        first, second = (F.cross_entropy(answer, batch.targets, reduction="none") for answer in logits)
        rate = self.drop_rate(context.epoch)
        taught_first, taught_second = smallest(second, rate), smallest(first, rate)
        own = first[taught_first].mean()
        context.apply(own + second[taught_second].mean())
        return StepResult(own.detach(), logits[0].detach(), {"drop_rate": rate})


def joint_losses(first: Tensor, second: Tensor, targets: Tensor, agreement: float) -> Tensor:
    """(1 - k) (CE_1 + CE_2) + k (KL(p_1 | p_2) + KL(p_2 | p_1)) of each sample (N,); gradients reach both logits."""
    one, two = F.log_softmax(first, 1), F.log_softmax(second, 1)
    labels = F.nll_loss(one, targets, reduction="none") + F.nll_loss(two, targets, reduction="none")
    divergence = ((one.exp() - two.exp()) * (one - two)).sum(1)  # both directions of KL in one sum
    return (1 - agreement) * labels + agreement * divergence


@METHODS.register("jocor")
class JoCoR(SmallLossPair):
    """Train two networks together on the samples with the smallest joint loss: cross entropy plus disagreement.

    A step uses the (1 - R) N samples of smallest loss.
    A wrong label is one that two networks answer differently, so disagreement (`agreement` k) both regularises and
    picks. R ramps from 0 to `noise_rate` over `ramp_epochs`; for flips to similar classes the authors give half the
    share of wrong labels. With agreement=0 and noise_rate=0 the networks are two of plain cross entropy.

    Reference: Wei et al., "Combating noisy labels by agreement: a joint training method with co-regularization", CVPR
    2020. The default k is that of their code; for its Adam they advise 0.9 (0.65 at 80 % noise) for ten classes and 0.85
    for a hundred. Differs from it in the ramp, which is full at epoch `ramp_epochs` (theirs one earlier).
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
