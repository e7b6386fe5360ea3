"""What the strength network reads: ten training characteristics (mathematics 1), and two numbers of all epochs so far."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.ranks import all_gather_rows, all_reduce

OF_SAMPLE = ("loss", "margin", "gradient_norm", "cosine", "entropy")
OF_CLASS = ("class_proportion", "class_mean_loss", "class_weight_norm")
NAMES = (*OF_SAMPLE, *OF_CLASS, "relative_loss", "relative_margin")
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


HISTORY_NAMES = ("mean_loss_so_far", "mean_margin_so_far")


class SampleHistory(nn.Module):
    """The mean loss and the mean margin of every training sample over the epochs so far.

    A wrong label that has been memorised looks like a right one; that it was learned late still shows in these means, as
    in the area under the margin of Pleiss et al., NeurIPS 2020. `forward` reads the means with what the network says now:
    a sample that was never seen, or has another label than the one that was, has its present loss and margin.

    >>> history = SampleHistory(num_samples=2)
    >>> index, targets = torch.tensor([0, 1]), torch.tensor([0, 1])
    >>> history.observe(torch.tensor([[4.0, 0.0], [0.0, 0.0]]), targets, index)
    >>> history(torch.zeros(2, 2), targets, index)[:, 1].round(decimals=2)
    tensor([0.4800, 0.0000])
    """

    sums: Tensor  # (3, N) of loss, margin and how often
    labels: Tensor  # (N,) that they were of; -1 before the first

    def __init__(self, num_samples: int) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(3, num_samples), persistent=False)
        self.register_buffer("labels", torch.full((num_samples,), -1), persistent=False)

    @torch.no_grad()
    def forward(self, logits: Tensor, targets: Tensor, index: Tensor) -> Tensor:
        """Means (N, 2) of a batch, in the order of HISTORY_NAMES, what `logits` say included."""
        index = index.to(self.sums.device)
        place = index.clamp(max=max(len(self.labels) - 1, 0))
        now = _row(logits, targets)
        if not len(self.labels):
            return now[:2].T
        known = (index < len(self.labels)) & (self.labels[place] == targets)
        sums = self.sums[:, place].to(now) * known + now
        return (sums[:2] / sums[2]).T

    @torch.no_grad()
    def observe(self, logits: Tensor, targets: Tensor, index: Tensor) -> None:
        """Add what the network says of a batch; once for each sample and epoch."""
        rows = all_gather_rows(index.to(self.sums.device))
        self.sums[:, rows] += all_gather_rows(_row(logits, targets).T.contiguous()).T.to(self.sums)
        self.labels[rows] = all_gather_rows(targets)

    def get_extra_state(self) -> dict[str, Any]:
        return {"sums": self.sums, "labels": self.labels}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike saved buffers: a trained model may be explained on data of another size.
        self.sums, self.labels = (state[name].to(self.sums.device) for name in ("sums", "labels"))


def _row(logits: Tensor, targets: Tensor) -> Tensor:
    loss, margin, _, _ = loss_and_margin(logits, targets)
    return torch.stack([loss, margin, torch.ones_like(loss)])
