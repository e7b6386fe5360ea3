"""The ten training characteristics that the strength network reads (mathematics 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.ranks import all_reduce

NAMES = (
    "loss",
    "margin",
    "gradient_norm",
    "cosine",
    "entropy",
    "class_proportion",
    "class_mean_loss",
    "class_weight_norm",
    "relative_loss",
    "relative_margin",
)
FIRST_LOSS, FIRST_MARGIN = 5.0, 1.0  # what the class means are taken to be in the first epoch
EPS = 1e-12


class Characteristics(nn.Module):
    """Ten numbers for every sample: how hard it is, and how it stands in its class.

    Class means of loss and margin are those of the previous epoch: `observe` adds a batch, `end_epoch` takes the means
    over. A class without samples in an epoch keeps its old ones. Everything is a buffer and detached.

    Reference: appendix C of arXiv 2304.13431, which is not public; the list is that of the same authors' CLP
    (arXiv 2505.15246), with the gradient norm as |onehot - p|.

    >>> characteristics = Characteristics(class_counts=torch.tensor([3, 1]))
    >>> rows = characteristics(torch.zeros(2, 2), torch.ones(2, 4), torch.tensor([0, 1]), torch.ones(2, 4))
    >>> dict(zip(NAMES, rows[0].round(decimals=3).tolist()))["class_proportion"]
    0.75
    """

    proportions: Tensor
    mean_loss: Tensor
    mean_margin: Tensor
    sums: Tensor

    def __init__(self, class_counts: Tensor) -> None:
        super().__init__()
        counts = torch.as_tensor(class_counts, dtype=torch.float32)
        self.register_buffer("proportions", counts / counts.sum())
        self.register_buffer("mean_loss", torch.full_like(counts, FIRST_LOSS))
        self.register_buffer("mean_margin", torch.full_like(counts, FIRST_MARGIN))
        self.register_buffer("sums", torch.zeros(3, len(counts), dtype=torch.float64))  # loss, margin, count

    @torch.no_grad()
    def forward(self, logits: Tensor, features: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
        """The characteristics (N, 10) of a batch, in the order of NAMES."""
        loss, margin, probabilities, log_probabilities = loss_and_margin(logits, targets)
        own = weight[targets]
        onehot = F.one_hot(targets, logits.shape[1]).to(probabilities)
        class_loss, class_margin = self.mean_loss[targets].to(loss), self.mean_margin[targets].to(loss)
        norms = features.norm(dim=1) * own.norm(dim=1)
        columns = (
            loss,
            margin,
            (onehot - probabilities).norm(dim=1),
            (features * own).sum(1) / (norms + EPS),
            -(probabilities * log_probabilities).sum(1),
            self.proportions[targets].to(loss),
            class_loss,
            own.norm(dim=1),
            loss - class_loss,
            margin - class_margin,
        )
        return torch.stack([column.to(loss) for column in columns], dim=1)

    @torch.no_grad()
    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch to the class means of the running epoch; of all ranks, so that any rank's state is the whole."""
        loss, margin, _, _ = loss_and_margin(logits, targets)
        rows = torch.stack([loss, margin, torch.ones_like(loss)]).to(self.sums)
        batch = torch.zeros_like(self.sums).index_add_(1, targets, rows)
        self.sums += all_reduce(batch)

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Take the running epoch's class means over and start a new epoch."""
        sums = self.sums
        seen = sums[2] > 0
        count = sums[2].clamp(min=1)
        self.mean_loss.copy_(torch.where(seen, sums[0] / count, self.mean_loss.to(sums)))
        self.mean_margin.copy_(torch.where(seen, sums[1] / count, self.mean_margin.to(sums)))
        self.sums.zero_()


def loss_and_margin(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """-log p_y, p_y - max_{c != y} p_c, and p and log p themselves."""
    log_probabilities = F.log_softmax(logits.detach().to(torch.promote_types(logits.dtype, torch.float32)), dim=1)
    probabilities = log_probabilities.exp()
    own = probabilities.gather(1, targets[:, None])
    rival = probabilities.scatter(1, targets[:, None], -1).max(dim=1).values
    return -log_probabilities.gather(1, targets[:, None])[:, 0], own[:, 0] - rival, probabilities, log_probabilities
