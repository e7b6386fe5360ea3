"""MAT: logits shifted by what held-out twins expect of each sample."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut, conditional_log_prior, joint_counts
from icda.methods.base import METHODS, Batch, Context, Output, Setup, checked
from icda.methods.cross_fitted import CrossFittedMethod
from icda.methods.per_sample import rows
from icda.ranges import NotNegative


@METHODS.register("mat")
class MAT(CrossFittedMethod):
    """Logit adjustment by what two cross-fitted networks predict for samples they have not seen.

    The loss is the cross entropy of z + tau log p(y | x), with p(y | x) = sum_a P(y | a) p(a | x): p(a | x) is a
    held-out probability of twins trained as in XRM, and P(y | a) counts which labels the samples have that they answer
    with a. No group label is read.

    Reference: Bayat et al., "The pitfalls of memorization", ICLR 2025 (memorization-aware training).
    """

    log_prior: Tensor

    @checked
    def __init__(self, setup: Setup, *, tau: NotNegative = 1.0, **options: Any) -> None:
        super().__init__(setup, **options)
        self.tau = tau
        self.register_buffer("log_prior", torch.zeros(0, setup.num_classes), persistent=False)

    def learn_from(self, held_out: HeldOut) -> None:
        self.log_prior = mixed_log_prior(held_out.logits, held_out.targets).to(self.log_prior.device)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        prior = rows(self.log_prior, batch, output.logits)
        return F.cross_entropy(output.logits + self.tau * prior, batch.targets)


def mixed_log_prior(logits: Tensor, targets: Tensor) -> Tensor:
    """log sum_a P(y | a) p(a | x) of each sample (N, C), P(y | a) counted over the most likely answers."""
    num_classes = logits.shape[1]
    counts = joint_counts(logits.argmax(1), targets, num_classes, num_classes)
    table = conditional_log_prior(counts)
    return (logits.double().softmax(1) @ table.exp()).log().float()  # no entry of the table is zero
