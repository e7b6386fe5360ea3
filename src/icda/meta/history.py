"""What a sample was like in all epochs so far: two numbers more for Meta-ICDA's strength network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icda.meta.characteristics import loss_and_margin
from icda.ranks import all_gather_rows

NAMES = ("mean_loss_so_far", "mean_margin_so_far")


class SampleHistory(nn.Module):
    """The mean loss and the mean margin of every training sample over the epochs so far.

    A wrong label that has been memorised looks like a right one, in all ten characteristics. That it was learned
    late still shows in its means, as in the area under the margin of Pleiss et al., NeurIPS 2020. `observe` adds a batch,
    that of all ranks; `forward` reads the means with what the network says now, so that a sample that was never seen, or
    has another label than the one that was, has its present loss and margin.

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
        """Means (N, 2) of a batch, in the order of NAMES, what `logits` say included."""
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
