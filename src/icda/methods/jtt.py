"""Just Train Twice (JTT): what a first network gets wrong counts more for a second one."""

import warnings
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from icda.methods.base import METHODS, Context, Figures, Method, Sampling, Setup, Stage, checked
from icda.methods.crt import two_stages
from icda.methods.per_sample import Keeps, over_training_set
from icda.ranges import OpenShare


@METHODS.register("jtt")
class JTT(Keeps, Method):
    """Train once to find errors, then train a fresh network that sees these samples more often.

    When `first_stage` of the epochs are over, a pass in evaluation mode, without augmentation, finds the training
    samples that the network gets wrong. It goes back to the weights the run began with and learns from samples drawn
    with weight `up_weight` for an error and 1 for the others: the expected gradient of the paper's upsampled training
    set, without long steps. No group label is read.

    Reference: Liu et al., "Just Train Twice", ICML 2021.
    """

    saved = ("errors",)
    errors: Tensor

    @checked
    def __init__(
        self, setup: Setup, *, first_stage: OpenShare = 0.2, up_weight: Annotated[float, Ge(1)] = 20.0
    ) -> None:
        super().__init__()
        self.first_stage, self.up_weight = first_stage, up_weight
        self.keep("errors", torch.zeros(setup.num_samples, dtype=torch.bool))

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("jtt", epochs, self.first_stage)
        # Weights that are all 1 would still draw with replacement: plain training serves each sample once.
        sampling: Sampling = "own" if self.up_weight > 1 else "uniform"
        afresh: dict[str, Any] = {"sampling": sampling, "restart": True, "reset_network": True}
        return [Stage(first, "identification", on_end=self.find_errors), Stage(second, "upweighted", **afresh)]

    def find_errors(self, context: Context) -> None:
        wrong, _ = over_training_set(
            context, self.errors.float(), lambda said, batch: said.logits.argmax(1) != batch.targets
        )
        self.errors.copy_(wrong >= 0.5)  # ranks may judge differently
        if not self.errors.any():
            warnings.warn(
                f"jtt: the network gets no training sample wrong after {context.stage.epochs} epochs, so the second "
                "stage has nothing to upweight and is plain training. A smaller first_stage stops sooner.",
                stacklevel=2,
            )

    def sampling_weights(self) -> Tensor:
        errors = self.errors.cpu()
        return torch.where(errors, self.up_weight, 1.0).double()

    def epoch_figures(self) -> Figures:
        return {"upweighted_errors": int(self.errors.sum())}
