"""Groups guessed from strengths or from biased networks, for a selection by the worst group without group labels."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from icda.functional.strength import direct_strength
from icda.methods.xrm import mistake_groups
from icda.metrics.figures import per_group_accuracy, worst_known
from icda.selection.rules import SELECTION_RULES, SelectionRule, ValidationView

METRIC = "worst_pseudo_group_accuracy"
SHARE = 0.25  # of each class: its samples that lie nearest to other classes
EARLY = 0.1  # share of the training after which groups are guessed


def strength_groups(features: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Two groups (N,) a class: 2 y + 1 for the quarter of its samples with the largest strength, 2 y for the rest.

    The strength is ICDA's alpha_i = (1 - cos(h_i, w_y)) / 2: a sample tied to a wrong class lies far from its own. An early
    network has learned the shortcut and little else, so what it finds far off are mostly samples that lack the shortcut.

    >>> import torch
    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [1.0, 0.1], [0.0, 1.0]])
    >>> strength_groups(features, torch.zeros(4, dtype=torch.long), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([0, 0, 0, 1])
    """
    strength = direct_strength(features, targets, weight).per_sample
    groups = 2 * targets
    for label in targets.unique():
        members = (targets == label).nonzero().flatten()
        farthest = strength[members].argsort(descending=True, stable=True)[: round(SHARE * len(members))]
        groups[members[farthest]] += 1
    return groups


class PseudoGroupObserver:
    """Guesses the groups of the validation split once, and judges every later epoch by them.

    Where a method has biased networks, when they are trained; else early in training.
    """

    def __init__(self) -> None:
        self.groups: Tensor | None = None

    def observe(self, seen: ValidationView) -> dict[str, float | None]:
        if self.groups is None:
            self.groups = self._guess(seen)
        if self.groups is None:
            return {METRIC: None}
        correct = seen.logits.argmax(1).eq(seen.targets)
        return {METRIC: worst_known(per_group_accuracy(correct, self.groups, int(self.groups.max()) + 1))}

    def _guess(self, seen: ValidationView) -> Tensor | None:
        if (answers := seen.answers()) is not None:
            return mistake_groups(answers, seen.targets)
        if seen.answers_later or seen.epoch < round(EARLY * seen.num_epochs) - 1:
            return None
        return strength_groups(seen.features(), seen.targets, seen.head_weight())

    def state_dict(self) -> dict[str, Any]:
        return {} if self.groups is None else {"pseudo_groups": self.groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.groups = state.get("pseudo_groups")


SELECTION_RULES.register("validation_worst_pseudo_group")(
    SelectionRule(
        "validation_worst_pseudo_group",
        METRIC,
        description="highest accuracy of the worst guessed group, by what cross-fitted networks get wrong or by early "
        "strengths; needs no group labels",
        observer=PseudoGroupObserver,
    )
)
