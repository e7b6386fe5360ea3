"""Early-learning regularisation (ELR): a network is held to what it said before it memorised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Context, Method, Setup
from icda.ranks import all_gather_rows

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output

LEAST = 1e-4  # probabilities are kept this far from 0 and 1, so that the logarithm stays finite


@METHODS.register("elr", "early_learning_regularisation")
class ELR(Method):
    """Cross entropy + weight log(1 - <p_i, t_i>), with t_i a running mean of what the network said of the sample.

    t_i <- momentum t_i + (1 - momentum) p_i at each visit, before the loss is computed. The regulariser's gradient pulls p
    back to t where cross entropy pulls it to a label that it has never believed: wrong labels are memorised late, and by
    then t says otherwise. No rate is needed. The running means are part of the state.

    Reference: Liu et al., "Early-learning regularization prevents memorization of noisy labels", NeurIPS 2020.
    """

    said: Tensor  # (N, C)

    def __init__(self, setup: Setup, *, weight: float = 3.0, momentum: float = 0.7) -> None:
        super().__init__()
        if not 0 <= weight < float("inf"):
            raise InputError(f"weight of the regulariser is a finite number, 0 or more, got {weight}.")
        if not 0 <= momentum < 1:
            raise InputError(f"momentum of the running mean lies in [0, 1), got {momentum}.")
        self.weight, self.momentum = weight, momentum
        self.register_buffer("said", torch.zeros(setup.num_samples, setup.num_classes), persistent=False)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        probabilities = bounded(output.logits.float().softmax(1))
        means = self._update(batch.index, probabilities.detach())
        agreement = (probabilities * means.to(probabilities)).sum(1)
        return F.cross_entropy(output.logits, batch.targets) + self.weight * torch.log(1 - agreement).mean()

    def _update(self, index: Tensor, probabilities: Tensor) -> Tensor:
        """The running means of the batch with what was just said; those of all ranks are kept."""
        index = index.to(self.said.device)
        share = probabilities / probabilities.sum(1, keepdim=True)
        means = self.momentum * self.said[index] + (1 - self.momentum) * share.to(self.said)
        self.said[all_gather_rows(index)] = all_gather_rows(means)
        return means

    def get_extra_state(self) -> dict[str, Any]:
        return {"said": self.said}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.said = state["said"].to(self.said.device)


def bounded(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(LEAST, 1 - LEAST)
