"""Truncated Lq: generalized cross entropy that stops believing some samples."""

import warnings

import torch
from torch import Tensor

from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods.base import METHODS, Batch, Context, Figures, Method, Output, Setup, checked
from icda.methods.per_sample import Keeps, label_probability, over_training_set
from icda.ranges import OpenShare, PositiveInt, Share


@METHODS.register("truncated_lq", "truncated_gce")
class TruncatedLq(Keeps, Method):
    """Generalized cross entropy that drops samples whose label has a probability below `threshold`.

    The loss is (1 - p_y^q) / q, and a constant, without gradient, for dropped samples. Which those are is found by a
    pass over the training set, first when `start` of the epochs are over and again every `refresh` epochs; a sample may
    come back. If no sample passes, all are kept until the next pass, and a warning says so.

    Reference: Zhang and Sabuncu, NeurIPS 2018, section 3.3.
    """

    saved = ("kept",)
    kept: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        q: Share = 0.7,
        threshold: OpenShare = 0.5,
        start: Share = 1 / 3,
        refresh: PositiveInt = 10,
    ) -> None:
        super().__init__()
        self.q, self.threshold, self.start, self.refresh = q, threshold, start, refresh
        self._first_epoch = round(start * setup.epochs)
        self.keep("kept", torch.ones(setup.num_samples, dtype=torch.bool))

    def is_pass_due(self, epoch: int) -> bool:
        """Whether an epoch starts with a new choice of samples."""
        return epoch >= self._first_epoch and (epoch - self._first_epoch) % self.refresh == 0

    def on_epoch_start(self, context: Context) -> None:
        if not self.is_pass_due(context.epoch):
            return
        probabilities, _ = over_training_set(context, self.kept.double(), label_probability)
        kept = probabilities >= self.threshold
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
        return torch.where(self.kept[batch.index.to(self.kept.device)], losses, given_up).mean()

    def epoch_figures(self) -> Figures:
        return {"kept_share": float(self.kept.double().mean())}


def _lq_at(probability: float, q: float) -> float:
    """The loss of a sample with p_y = probability."""
    logits = torch.tensor([[probability, 1 - probability]], dtype=torch.float64).log()
    return float(generalized_cross_entropy(logits, torch.tensor([0]), q))
