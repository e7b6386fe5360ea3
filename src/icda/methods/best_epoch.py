"""What cross-fitted networks say of samples held out from them, averaged over epochs, up to the best of these."""

from typing import Any

import torch
from torch import Tensor

from icda.data.task import Batch
from icda.methods.base import Context, Setup, StepResult
from icda.methods.cross_fitted import CrossFittedMethod
from icda.methods.per_sample import PerSample, write_rows

NEW = 0.5  # what the present epoch counts in the running mean of held-out answers


class BestEpoch(PerSample, CrossFittedMethod):
    """Notes the running mean of held-out answers, and keeps that of the epoch that agrees most with the given labels.

    Right labels can be predicted, wrong ones cannot: this stops before the networks harm, and reads nothing clean.
    """

    per_sample = ("given", "latest", "average", "kept")  # noted while the networks train, empty after
    given: Tensor  # (N,) labels
    latest: Tensor  # (N, C) held-out probabilities of this epoch
    average: Tensor  # (N, C) running mean over epochs
    kept: Tensor  # (N, C) the running mean of the best epoch

    def __init__(self, setup: Setup, **options: Any) -> None:
        super().__init__(setup, **options)
        self.best_agreement = 0.0  # of the kept answers with the given labels
        shape = (setup.num_samples, setup.num_classes)
        for name in self.per_sample[1:]:
            self.keep(name, torch.zeros(shape))
        self.keep("given", torch.zeros(shape[0], dtype=torch.long))

    def cross_fit_step(self, batch: Batch, context: Context, flips: bool = True) -> StepResult:
        result = super().cross_fit_step(batch, context, flips)
        if flips:  # networks that are trained again, on the labels as they are, are not asked here
            assert result.logits is not None
            write_rows(self.latest, batch.index, result.logits.softmax(1))
            write_rows(self.given, batch.index, batch.targets)
        return result

    def on_epoch_end(self, context: Context) -> None:
        if self.evidence is not None:  # the networks have answered
            return
        self.average = self.latest.clone() if context.epoch == 0 else torch.lerp(self.average, self.latest, NEW)
        agreement = float((self.average.argmax(1) == self.given).double().mean())
        if agreement > self.best_agreement:
            self.best_agreement, self.kept = agreement, self.average.clone()
        self.found = {"held_out_agreement": agreement}

    def take_best(self) -> tuple[Tensor, Tensor]:
        """Logarithms (N, C) of the kept answers and the given labels (N,), on the CPU; what was noted is let go."""
        floor = torch.finfo(self.kept.dtype).tiny
        best = self.kept.clamp(min=floor).log().cpu(), self.given.cpu()
        for name in self.per_sample:
            setattr(self, name, getattr(self, name)[:0])
        return best

    def get_extra_state(self) -> dict[str, Any]:
        evidence = CrossFittedMethod.get_extra_state(self)
        return {**evidence, **super().get_extra_state(), "agreement": self.best_agreement}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.best_agreement = state["agreement"]
        CrossFittedMethod.set_extra_state(self, state)
