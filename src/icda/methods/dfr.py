"""Deep Feature Reweighting (DFR): plain training, then a new head fitted to group-balanced validation data."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.loader import balanced_weights
from icda.errors import InputError
from icda.heads.solver import LinearHead
from icda.heads.sparse import fit_sparse_head
from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Batch, Context, Figures, Method, Setup, Stage, StepResult, checked
from icda.methods.crt import two_stages
from icda.models.base import evaluating
from icda.ranges import NotNegative
from icda.ranks import all_mean

STRENGTHS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of the penalty, strongest first
CONSTANT = 1e-6  # a deviation below this share of the mean is rounding


class Encoded(NamedTuple):
    """Standardised features (N, A) of the validation split, with `targets` and `groups` (N,)."""

    features: Tensor
    targets: Tensor
    groups: Tensor

    def rows(self, chosen: Tensor) -> Encoded:
        return Encoded(self.features[chosen], self.targets[chosen], self.groups[chosen])


@METHODS.register("dfr")
class DFR(Method):
    """Train with cross entropy, then freeze the encoder and fit a new head to group-balanced validation data.

    Cross entropy takes all epochs but the last, which only counts what the fitted head gets right. The head minimises
    sum_i m_i CE_i + l1 sum_cj |w_cj| over standardised features, to convergence, where m gives every group the same
    mass. With `l1` None the penalty is the one of 0.3 to 0.001 whose head, fitted to one half of the validation split,
    is best in the worst group of the other half.

    Reference: Kirichenko et al., "Last layer re-training is sufficient for robustness to spurious correlations", ICLR
    2023.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"validation", "validation groups"})
    chosen_l1: Tensor

    @checked
    def __init__(self, setup: Setup, *, l1: NotNegative | None = None) -> None:
        super().__init__()
        self.l1, self._seed = l1, setup.seed
        self.register_buffer("chosen_l1", torch.tensor(float("nan")))

    def stages(self, epochs: int) -> list[Stage]:
        # The first stage is a whole training, with a schedule of its own: its features are what the head lives on.
        head: dict[str, Any] = {"trains": "head", "restart": True, "reset_head": True, "split": "validation"}
        fitted = Stage(1, "head", **head, on_start=self.fit_head, step=self.look)
        first, _ = two_stages("dfr", epochs, 1.0)
        return [Stage(first, "representation", restart=True), fitted]

    @torch.no_grad()
    def look(self, batch: Batch, context: Context) -> StepResult:
        """A step that only counts what the fitted head gets right."""
        output = context.models[0](batch.inputs)
        return StepResult(self.loss(output, batch, context), output.logits)

    def epoch_figures(self) -> Figures:
        return {} if self.chosen_l1.isnan() else {"l1": float(self.chosen_l1)}

    @torch.no_grad()
    def fit_head(self, context: Context) -> None:
        encoded, mean, scale = _encode(context)
        weight, bias = head_parameters(context.head)
        if bias is None:
            raise InputError("dfr fits a head with a bias, and the network's last layer has none.")
        num_classes = weight.shape[0]
        l1 = choose_l1(encoded, num_classes, self._seed) if self.l1 is None else self.l1
        self.chosen_l1.fill_(l1)
        head = fit_balanced(encoded, num_classes, l1).unscaled(mean, scale)
        # Ranks differ in BatchNorm's figures, so their heads are averaged.
        weight.copy_(all_mean(head.weight.to(weight)))
        bias.copy_(all_mean(head.bias.to(bias)))


def fit_balanced(encoded: Encoded, num_classes: int, l1: float, start: LinearHead | None = None) -> LinearHead:
    """The head of the samples, every group of which has the same mass."""
    weights = balanced_weights(encoded.groups)
    return fit_sparse_head(encoded.features, encoded.targets, num_classes, l1, weights, start=start)


def choose_l1(encoded: Encoded, num_classes: int, seed: int) -> float:
    """The penalty whose head, fitted to one half of each group, is best in the worst group of the other half.

    Of equals the strongest. A group of a single sample is in the second half and is not learned from.
    """
    generator = generator_for(seed, "dfr")
    learned = torch.zeros(len(encoded.groups), dtype=torch.bool)
    for group in encoded.groups.unique():
        members = (encoded.groups == group).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        learned[members[: len(members) // 2]] = True
    if not learned.any():
        return STRENGTHS[0]
    first, second = encoded.rows(learned), encoded.rows(~learned)
    best, best_worst, head = STRENGTHS[0], -1.0, None
    for l1 in STRENGTHS:
        head = fit_balanced(first, num_classes, l1, start=head)
        right = head.logits(second.features).argmax(1) == second.targets
        worst = min(float(right[second.groups == group].float().mean()) for group in second.groups.unique())
        if worst > best_worst:
            best, best_worst = l1, worst
    return best


def _encode(context: Context) -> tuple[Encoded, Tensor, Tensor]:
    """The validation split's features, standardised, on the CPU, and their mean and scale; 1 for one that never changes."""
    model = context.models[0]
    features, targets, groups = [], [], []
    with evaluating(model):
        for batch in context.training_batches():
            assert batch.groups is not None, "check_needs admits no task without groups of its validation samples"
            features.append(model(batch.inputs).features.float().cpu())
            targets.append(batch.targets.cpu())
            groups.append(batch.groups.cpu())
    encoded = torch.cat(features)
    mean, scale = encoded.mean(0), encoded.std(0, correction=0)
    scale = torch.where(scale > CONSTANT * mean.abs(), scale, 1.0)
    return Encoded((encoded - mean) / scale, torch.cat(targets), torch.cat(groups)), mean, scale
