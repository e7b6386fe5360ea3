"""Deep Feature Reweighting (DFR): plain training, then a new head on group-balanced validation data."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Context, Method, Setup, Stage
from icda.statistics import ClassStatistics

if TYPE_CHECKING:
    from icda.data.task import Batch
    from icda.models.base import Output

CONSTANT = 1e-6  # a deviation below this share of the mean is rounding


@METHODS.register("dfr")
class DFR(Method):
    """Cross entropy for `first_stage` of the epochs, then the encoder is frozen and a new head learns the validation split.

    In the second stage every group is drawn equally often. `l1` adds l1 sum_cj s_j |w_cj|, s_j the standard deviation of
    feature j over the training set: that is the L1 norm of the weights of standardised features, which the paper
    penalises. `head_learning_rate` is where the second stage's schedule starts; None takes the configuration's.

    Reference: Kirichenko et al., "Last layer re-training is sufficient for robustness to spurious correlations", ICLR
    2023 (arXiv 2022). Differs from the paper, which averages logistic regressions on random balanced subsets: here one head
    is trained by the run's optimiser on all validation samples, the rare groups' drawn more often.

    >>> setup = Setup(2, 4, torch.tensor([6, 2]), epochs=10, num_samples=8)
    >>> [(stage.name, stage.epochs, stage.split) for stage in DFR(setup).stages(10)]
    [('representation', 8, 'train'), ('head', 2, 'validation')]
    """

    needs: ClassVar[frozenset[str]] = frozenset({"validation", "validation groups"})
    feature_scale: Tensor

    def __init__(
        self, setup: Setup, *, first_stage: float = 0.8, l1: float = 0.0, head_learning_rate: float | None = None
    ) -> None:
        super().__init__()
        if not 0 < first_stage < 1:
            raise ValueError(f"first_stage is a share of the epochs in (0, 1), got {first_stage}.")
        if not 0 <= l1 < float("inf"):
            raise ValueError(f"l1 is a finite number, 0 or more, got {l1}.")
        if head_learning_rate is not None and not 0 < head_learning_rate < float("inf"):
            raise ValueError(f"head_learning_rate is a positive number or None, got {head_learning_rate}.")
        if setup.epochs < 2:
            raise ValueError(f"dfr trains the network, then the head: it needs 2 epochs or more, got {setup.epochs}.")
        self.first_stage, self.l1, self.head_learning_rate = first_stage, l1, head_learning_rate
        self.register_buffer("feature_scale", torch.ones(setup.feature_dim))

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs - 1)
        head = Stage(
            epochs - first,
            "head",
            trains="head",
            sampling="group_balanced",
            restart=True,
            reset_head=True,
            split="validation",
            learning_rate=self.head_learning_rate,
        )
        # The first stage is a whole training, with a schedule of its own: its features are what the head lives on.
        return [Stage(first, "representation", restart=True), head]

    def on_stage_start(self, context: Context) -> None:
        if context.stage.name == "head" and self.l1 > 0:
            self.feature_scale.copy_(self._training_scale(context))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        loss = F.cross_entropy(output.logits, batch.targets)
        if context.stage.name != "head" or self.l1 == 0:
            return loss
        weight, _ = head_parameters(context.head)
        return loss + self.l1 * (weight.abs() * self.feature_scale.to(weight)).sum()

    @torch.no_grad()
    def _training_scale(self, context: Context) -> Tensor:
        """Standard deviation (A,) of each feature over the training set; 1 for a feature that never changes."""
        model = context.models[0]
        was_training = [(module, module.training) for module in model.modules()]
        model.eval()
        size = (model.num_classes, len(self.feature_scale))
        statistics = ClassStatistics(*size, covariance="diagonal").to(self.feature_scale.device)
        for batch in context.training_batches():
            statistics.update(model(batch.inputs).features, batch.targets)
        for module, training in was_training:
            module.training = training
        # Pooled over the ranks, each of which passes over the whole set, and over the classes: within and between.
        share = (statistics.count / statistics.count.sum()).to(statistics.mean)
        centre = share @ statistics.mean
        scale = (share @ (statistics.covariance + (statistics.mean - centre).square())).sqrt()
        changes = scale > CONSTANT * centre.abs()
        return torch.where(changes, scale, 1.0)
