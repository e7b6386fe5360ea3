import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods import Context, Method, Setup


class ClippedLoss(Method):
    """Cross entropy, each sample's at most `cap` times the running mean."""

    running_mean: Tensor

    def __init__(
        self,
        setup: Setup,
        *,
        cap: float = 2.0,
        momentum: float = 0.9,
    ) -> None:
        super().__init__()
        self.cap, self.momentum = cap, momentum
        # A buffer is saved, and restored when a run is resumed.
        self.register_buffer("running_mean", torch.zeros(()))

    def loss(self, output, batch, context: Context) -> Tensor:
        logits, targets = output.logits, batch.targets
        losses = F.cross_entropy(logits, targets, reduction="none")
        mean = losses.detach().mean()
        if self.running_mean > 0:
            mean = self.running_mean.lerp(mean, 1 - self.momentum)
        self.running_mean = mean
        return losses.clamp(max=self.cap * mean.item()).mean()
