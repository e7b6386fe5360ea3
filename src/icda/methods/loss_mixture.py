"""Loss mixture: two normal distributions are fitted to the losses; samples of the upper one trust the network instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Context, Method, Setup
from icda.models.modes import evaluating
from icda.ranks import all_mean
from icda.results.epoch import Figure

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output

ROUNDS, SAME, LEAST_VARIANCE = 100, 1e-6, 1e-4


@METHODS.register("loss_mixture", "dynamic_bootstrapping")
class LossMixture(Method):
    """w CE(y) + (1 - w) CE(the network's own answer), w the probability that a sample's loss is of the lower component.

    Until `start` of the epochs are over this is cross entropy. Then each epoch begins with a pass over the training set in
    evaluation mode, and a mixture of two normal distributions is fitted to the losses, scaled to [0, 1]: networks learn
    right labels first, so that wrong ones form the upper component. No rate is needed.

    Reference: Arazo et al., "Unsupervised label noise modeling and loss correction", ICML 2019 (hard dynamic
    bootstrapping, with beta distributions); normal ones as in Li et al., "DivideMix", ICLR 2020. Differs from both in
    leaving mixup and semi-supervised training out.
    """

    clean: Tensor  # (N,) probability that a label is right

    def __init__(self, setup: Setup, *, start: float = 0.1) -> None:
        super().__init__()
        if not 0 <= start <= 1:
            raise InputError(f"start is a share of the epochs in [0, 1], got {start}.")
        self.first_epoch = max(1, round(start * setup.epochs))
        self.register_buffer("clean", torch.ones(setup.num_samples), persistent=False)

    def on_epoch_start(self, context: Context) -> None:
        if context.epoch >= self.first_epoch:
            self.clean.copy_(lower_component(self._losses(context)))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        given = F.cross_entropy(output.logits, batch.targets, reduction="none")
        own = F.cross_entropy(output.logits, output.logits.detach().argmax(1), reduction="none")
        trust = self.clean[batch.index.to(self.clean.device)].to(given)
        return (trust * given + (1 - trust) * own).mean()

    def epoch_figures(self) -> Mapping[str, Figure]:
        return {"label_trust": float(self.clean.double().mean())}

    def get_extra_state(self) -> dict[str, Any]:
        return {"clean": self.clean}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.clean = state["clean"].to(self.clean.device)

    @torch.no_grad()
    def _losses(self, context: Context) -> Tensor:
        """Cross entropy (N,) of every training sample in evaluation mode; the same on all ranks."""
        model, losses = context.models[0], torch.zeros_like(self.clean)
        with evaluating(model):
            for batch in context.training_batches():
                each = F.cross_entropy(model(batch.inputs).logits.float(), batch.targets, reduction="none")
                losses[batch.index] = each.to(losses)
        return all_mean(losses)  # BatchNorm's running figures differ between ranks


def lower_component(losses: Tensor) -> Tensor:
    """Probability (N,) of each loss to come from the lower of two normal distributions fitted to all (EM).

    Losses that are all alike belong to the lower one.

    >>> lower_component(torch.tensor([0.1, 0.2, 0.15, 3.0, 2.8])).round()
    tensor([1., 1., 1., 0., 0.])
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
