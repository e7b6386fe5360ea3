"""Truncated Lq: generalized cross entropy that stops believing some samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.generalized_cross_entropy import check_exponent, generalized_cross_entropy
from icda.methods.base import METHODS, Context, Method, Setup
from icda.models.modes import evaluating
from icda.ranks import all_mean
from icda.results.epoch import Figure

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output


@METHODS.register("truncated_lq", "truncated_gce")
class TruncatedLq(Method):
    """Lq loss (1 - p_y^q) / q that counts as a constant, without gradient, for samples with p_y below `threshold`.

    Which samples those are is found by a pass over the training set, first when `start` of the epochs are over (the paper's
    40 of 120) and again every `refresh` epochs; a sample may come back. Until then all count. The choice is part of the
    state. If no sample passes, all are kept until the next pass, and a warning says so.

    Reference: Zhang and Sabuncu, NeurIPS 2018, section 3.3. Differs from the public code in that the pass uses the network
    as it is, not the one that was best so far on validation data.
    """

    kept: Tensor

    def __init__(
        self,
        setup: Setup,
        *,
        q: float = 0.7,
        threshold: float = 0.5,
        start: float = 1 / 3,
        refresh: int = 10,
    ) -> None:
        super().__init__()
        check_exponent(q)
        if not 0 < threshold < 1:
            raise InputError(f"threshold is a probability in (0, 1), got {threshold}.")
        if not 0 <= start <= 1:
            raise InputError(f"start is a share of the epochs in [0, 1], got {start}.")
        if not (isinstance(refresh, int) and refresh >= 1):
            raise InputError(f"refresh is a number of epochs, 1 or more, got {refresh}.")
        self.q, self.threshold, self.start, self.refresh = q, threshold, start, refresh
        self._first_epoch = round(start * setup.epochs)
        self.register_buffer("kept", torch.ones(setup.num_samples, dtype=torch.bool), persistent=False)

    def is_pass_due(self, epoch: int) -> bool:
        """Whether an epoch starts with a new choice of samples."""
        return epoch >= self._first_epoch and (epoch - self._first_epoch) % self.refresh == 0

    def on_epoch_start(self, context: Context) -> None:
        if not self.is_pass_due(context.epoch):
            return
        kept = self._probabilities(context) >= self.threshold
        if not kept.any():
            warnings.warn(
                f"truncated_lq: no training sample reaches p_y >= {self.threshold} in epoch {context.epoch + 1}, so all "
                "are kept until the next pass. A later start or a lower threshold lets the truncation begin.",
                stacklevel=2,
            )
            kept = torch.ones_like(kept)
        self.kept.copy_(kept)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = generalized_cross_entropy(output.logits, batch.targets, self.q)
        given_up = _lq_at(self.threshold, self.q)
        return torch.where(self.kept[batch.index], losses, given_up).mean()

    def epoch_figures(self) -> Mapping[str, Figure]:
        return {"kept_share": float(self.kept.double().mean())}

    def get_extra_state(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.kept = state["kept"].to(self.kept.device)

    @torch.no_grad()
    def _probabilities(self, context: Context) -> Tensor:
        """p_y of every training sample, of the network in evaluation mode; the same on all ranks."""
        model, probabilities = context.models[0], torch.zeros(len(self.kept), device=self.kept.device)
        with evaluating(model):
            for batch in context.training_batches():
                own = F.softmax(model(batch.inputs).logits.float(), dim=1).gather(1, batch.targets[:, None])
                probabilities[batch.index] = own.squeeze(1)
        return all_mean(probabilities)  # BatchNorm's running figures differ between ranks


def _lq_at(probability: float, q: float) -> float:
    """The loss of a sample with p_y = probability."""
    logits = torch.tensor([[probability, 1 - probability]], dtype=torch.float64).log()
    return float(generalized_cross_entropy(logits, torch.tensor([0]), q))
