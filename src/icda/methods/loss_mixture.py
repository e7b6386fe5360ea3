"""Loss mixture: two normal distributions are fitted to the losses; samples of the upper one trust the network instead."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS, Batch, Context, Figures, Method, Output, Setup, checked
from icda.methods.per_sample import Keeps, over_training_set, rows
from icda.ranges import Share

ROUNDS, SAME, LEAST_VARIANCE = 100, 1e-6, 1e-4


@METHODS.register("loss_mixture", "dynamic_bootstrapping")
class LossMixture(Keeps, Method):
    """Split losses into clean and noisy by a mixture model, and replace labels that look wrong by predictions.

    The loss is w CE(y) + (1 - w) CE(prediction), w the probability that a sample's loss is of the lower component. Until
    `start` of the epochs are over this is cross entropy. Then each epoch begins with a pass over the training set in
    evaluation mode, and a mixture of two normal distributions is fitted to the losses, scaled to [0, 1]. No rate is
    needed.

    Reference: Arazo et al., "Unsupervised label noise modeling and loss correction", ICML 2019; Li et al., "DivideMix",
    2020.
    """

    saved = ("clean",)
    clean: Tensor  # (N,) probability that a label is right

    @checked
    def __init__(self, setup: Setup, *, start: Share = 0.1) -> None:
        super().__init__()
        self.first_epoch = max(1, round(start * setup.epochs))
        self.keep("clean", torch.ones(setup.num_samples))

    def on_epoch_start(self, context: Context) -> None:
        if context.epoch >= self.first_epoch:
            losses, _ = over_training_set(context, self.clean, _losses)
            self.clean.copy_(lower_component(losses))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        given = F.cross_entropy(output.logits, batch.targets, reduction="none")
        own = F.cross_entropy(output.logits, output.logits.detach().argmax(1), reduction="none")
        trust = rows(self.clean, batch, given)
        return (trust * given + (1 - trust) * own).mean()

    def epoch_figures(self) -> Figures:
        return {"label_trust": float(self.clean.double().mean())}


def _losses(output: Output, batch: Batch) -> Tensor:
    return F.cross_entropy(output.logits.float(), batch.targets, reduction="none")


def lower_component(losses: Tensor) -> Tensor:
    """Probability (N,) of each loss to come from the lower of two normal distributions fitted to all (EM).

    Losses that are all alike belong to the lower one.
    """
    values = losses.double()
    low, high = values.min(), values.max()
    if not high > low:
        return torch.ones_like(losses)
    values = ((values - low) / (high - low))[:, None]
    means = torch.tensor([0.0, 1.0], dtype=torch.double, device=values.device)
    variances, shares = torch.full_like(means, float(values.var(correction=0))), torch.full_like(means, 0.5)
    posterior = torch.zeros(len(values), 2, dtype=torch.double, device=values.device)
    for _ in range(ROUNDS):
        before = means
        scores = shares.log() - 0.5 * variances.log() - (values - means).square() / (2 * variances)
        posterior = scores.softmax(1)
        mass = posterior.sum(0).clamp(min=1e-12)
        means = (posterior * values).sum(0) / mass
        variances = (posterior * (values - means).square()).sum(0) / mass + LEAST_VARIANCE
        shares = mass / mass.sum()
        if (means - before).abs().max() < SAME:
            break
    return posterior[:, int(means.argmin())].to(losses)
