"""Just Train Twice (JTT): what a first network gets wrong counts more for a second one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Context, Method, Sampling, Setup, Stage
from icda.models.modes import evaluating
from icda.ranks import all_mean
from icda.results.epoch import Figure

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output


@METHODS.register("jtt")
class JTT(Method):
    """Cross entropy for a first part of the epochs; then a fresh network, to which the first one's errors count more.

    When `first_stage` of the epochs are over, a pass over the training set in evaluation mode, without augmentation, finds
    the samples that the network gets wrong. The network goes back to the weights the run began with and learns from samples
    drawn with weight `up_weight` for an error and 1 for the others. A step's expected gradient is then that of the paper's
    upsampled training set, and no step is `up_weight` times as long as another, as it would be with weights on the losses.
    No group labels are read. With up_weight=1 the second stage is plain training.

    Reference: Liu et al., "Just Train Twice", ICML 2021. Differs from the paper in that an epoch of the second stage has as
    many samples as one of the first, drawn with replacement, and both stages share the epochs of the run.

    >>> setup = Setup(2, 4, torch.tensor([6, 2]), epochs=10, num_samples=8)
    >>> [(stage.name, stage.epochs) for stage in JTT(setup).stages(10)]
    [('identification', 2), ('upweighted', 8)]
    """

    errors: Tensor

    def __init__(self, setup: Setup, *, first_stage: float = 0.2, up_weight: float = 20.0) -> None:
        super().__init__()
        if not 0 < first_stage < 1:
            raise InputError(f"first_stage is a share of the epochs in (0, 1), got {first_stage}.")
        if not 1 <= up_weight < float("inf"):
            raise InputError(f"up_weight says how often an error counts, a finite number, 1 or more, got {up_weight}.")
        if setup.epochs < 2:
            raise InputError(f"jtt trains twice: it needs 2 epochs or more, got {setup.epochs}.")
        self.first_stage, self.up_weight = first_stage, up_weight
        self.register_buffer("errors", torch.zeros(setup.num_samples, dtype=torch.bool), persistent=False)

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs - 1)
        # Weights that are all 1 would still draw with replacement: plain training serves each sample once.
        sampling: Sampling = "own" if self.up_weight > 1 else "uniform"
        second = Stage(epochs - first, "upweighted", sampling=sampling, restart=True, reset_network=True)
        return [Stage(first, "identification"), second]

    def on_epoch_end(self, context: Context) -> None:
        # Not at the start of the second stage: by then the trainer has reset the network.
        if context.stage.name == "identification" and context.epoch + 1 == context.stage.epochs:
            self.errors.copy_(self._find_errors(context))
            if not self.errors.any():
                warnings.warn(
                    f"jtt: the network gets no training sample wrong after {context.stage.epochs} epochs, so the second "
                    "stage has nothing to upweight and is plain training. A smaller first_stage stops sooner.",
                    stacklevel=2,
                )

    def sampling_weights(self) -> Tensor:
        errors = self.errors.cpu()
        return torch.where(errors, self.up_weight, 1.0).double()

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return F.cross_entropy(output.logits, batch.targets)

    def epoch_figures(self) -> Mapping[str, Figure]:
        return {"upweighted_errors": int(self.errors.sum())}

    def get_extra_state(self) -> dict[str, Any]:
        return {"errors": self.errors}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.errors = state["errors"].to(self.errors.device)

    @torch.no_grad()
    def _find_errors(self, context: Context) -> Tensor:
        """Which training samples (N,) the network gets wrong in evaluation mode; the same on all ranks."""
        model, wrong = context.models[0], torch.zeros(len(self.errors), device=self.errors.device)
        with evaluating(model):
            for batch in context.training_batches():
                wrong[batch.index] = (model(batch.inputs).logits.argmax(1) != batch.targets).to(wrong)
        return all_mean(wrong) >= 0.5  # BatchNorm's running figures, and so the verdicts, differ between ranks
