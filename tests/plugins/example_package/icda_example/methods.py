import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods import Context, Method, Setup


class ClippedLoss(Method):
    """Cross entropy where no sample counts more than `cap` times the running mean."""

    running_mean: Tensor

    def __init__(self, setup: Setup, *, cap: float = 2.0, momentum: float = 0.9) -> None:
        super().__init__()
        self.cap, self.momentum = cap, momentum
        self.register_buffer("running_mean", torch.zeros(()))  # saved, and restored when a run is resumed

    def loss(self, output, batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        mean = losses.detach().mean()
        self.running_mean = mean if self.running_mean == 0 else self.running_mean.lerp(mean, 1 - self.momentum)
        return losses.clamp(max=self.cap * self.running_mean.item()).mean()
