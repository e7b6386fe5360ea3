"""ISDA as public code computes it, with a tensor of N x C x A: what our forms are compared with."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PeersISDA(nn.Module):
    """Cross entropy of z_c + (lambda/2) d_c^T Sigma_y d_c, every difference d_c = w_c - w_y of every sample written out.

    Statistics come from every sample laid out beside every class, too. The value is that of our `ISDALoss` without a bound
    on variances; a test holds the two together. Our own code, after the formulas of Wang et al., NeurIPS 2019.
    """

    count: Tensor
    mean: Tensor
    covariance: Tensor

    def __init__(self, num_classes: int, feature_dim: int, lambda0: float = 0.5) -> None:
        super().__init__()
        self.lambda0 = lambda0
        self.register_buffer("count", torch.zeros(num_classes))
        self.register_buffer("mean", torch.zeros(num_classes, feature_dim))
        self.register_buffer("covariance", torch.zeros(num_classes, feature_dim, feature_dim))

    @torch.no_grad()
    def update(self, features: Tensor, targets: Tensor) -> None:
        belongs = F.one_hot(targets, len(self.count)).to(features)  # (N, C)
        added = belongs.sum(0)
        spread = features[:, None, :] * belongs[:, :, None]  # (N, C, A)
        mean = spread.sum(0) / added.clamp(min=1)[:, None]
        centred = (spread - mean * belongs[:, :, None]).permute(1, 2, 0)  # (C, A, N)
        covariance = centred @ centred.mT / added.clamp(min=1)[:, None, None]
        share = added / (self.count + added).clamp(min=1)
        delta = self.mean - mean
        between = (share * (1 - share))[:, None, None] * delta[:, :, None] * delta[:, None, :]
        weight = share[:, None, None]
        self.covariance = self.covariance * (1 - weight) + covariance * weight + between
        self.mean = self.mean * (1 - share)[:, None] + mean * share[:, None]
        self.count = self.count + added

    def forward(self, features: Tensor, targets: Tensor, head: nn.Linear, progress: float, logits: Tensor) -> Tensor:
        self.update(features.detach(), targets)
        differences = head.weight[None] - head.weight[targets][:, None]  # (N, C, A)
        mapped = differences @ self.covariance[targets] @ differences.mT  # (N, C, C), of which the diagonal is needed
        variances = mapped.diagonal(dim1=1, dim2=2)
        return F.cross_entropy(logits + 0.5 * self.lambda0 * progress * variances, targets)
