"""Early-learning regularisation (ELR): a network is held to what it said before it memorised."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, checked
from icda.methods.per_sample import Keeps, write_rows
from icda.ranges import NotNegative, ShareBelowOne

LEAST = 1e-4  # probabilities are kept this far from 0 and 1, so that the logarithm stays finite


@METHODS.register("elr", "early_learning_regularisation")
class ELR(Keeps, Method):
    """Cross entropy plus a term that keeps predictions near their own running mean, against memorised labels.

    The loss is CE + weight log(1 - <p_i, t_i>), with t_i <- momentum t_i + (1 - momentum) p_i at each visit, before the
    loss is computed. The regulariser pulls p back to t where cross entropy pulls it to a label that it has never
    believed. No rate is needed.

    Reference: Liu et al., "Early-learning regularization prevents memorization of noisy labels", NeurIPS 2020.
    """

    saved = ("means",)
    means: Tensor  # (N, C)

    @checked
    def __init__(self, setup: Setup, *, weight: NotNegative = 3.0, momentum: ShareBelowOne = 0.7) -> None:
        super().__init__()
        self.weight, self.momentum = weight, momentum
        self.keep("means", torch.zeros(setup.num_samples, setup.num_classes))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        probabilities = output.logits.float().softmax(1).clamp(LEAST, 1 - LEAST)
        index, said = batch.index.to(self.means.device), probabilities.detach()
        share = said / said.sum(1, keepdim=True)
        means = self.momentum * self.means[index] + (1 - self.momentum) * share.to(self.means)
        write_rows(self.means, index, means)  # those of all ranks
        agreement = (probabilities * means.to(probabilities)).sum(1)
        return F.cross_entropy(output.logits, batch.targets) + self.weight * torch.log(1 - agreement).mean()
