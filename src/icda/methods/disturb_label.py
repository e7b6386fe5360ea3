"""DisturbLabel: labels that are now and then wrong on purpose."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, checked
from icda.ranges import Share


@METHODS.register("disturb_label")
class DisturbLabel(Method):
    """Cross entropy with labels redrawn at random, with probability alpha, each time a sample is seen.

    A redrawn label may fall on its own class. The draw for a sample depends on (seed, epoch, sample) alone, so a resumed
    run and several processes draw the same. alpha=0 is cross entropy.

    Reference: Xie et al., "DisturbLabel: regularizing CNN on the loss layer", CVPR 2016.
    """

    @checked
    def __init__(self, setup: Setup, *, alpha: Share = 0.1) -> None:
        super().__init__()
        self.alpha = alpha
        self._setup = setup
        self._draws: tuple[int, Tensor, Tensor] | None = None

    def disturbed(self, targets: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The labels to train on in an epoch."""
        if self._draws is None or self._draws[0] != epoch:  # once an epoch, for the whole training set
            count, generator = self._setup.num_samples, generator_for(self._setup.seed, "disturb_label", epoch)
            hit = torch.rand(count, generator=generator) < self.alpha
            self._draws = epoch, hit, torch.randint(self._setup.num_classes, (count,), generator=generator)
        _, hit, drawn = self._draws
        positions = index.to(hit.device)
        return torch.where(hit[positions].to(targets.device), drawn[positions].to(targets), targets)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return F.cross_entropy(output.logits, self.disturbed(batch.targets, batch.index, context.epoch))
