"""What a selection rule may look at after an epoch, and the hook for a rule with a figure of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class ValidationView:
    """The validation split as the model of an epoch sees it. What is a function is computed when called.

    `answers` are those of biased networks that a method trains beside its own: None where there are none, or none yet; then
    `answers_later` says whether to wait for them.
    """

    epoch: int
    num_epochs: int
    metrics: Mapping[str, Any]  # of `icda.metrics.evaluate_predictions`
    logits: Tensor  # (N, C)
    targets: Tensor  # (N,)
    features: Callable[[], Tensor]  # (N, A)
    head_weight: Callable[[], Tensor]  # (C, A)
    answers: Callable[[], Tensor | None] = lambda: None  # (N,)
    answers_later: bool = False


class Observer(Protocol):
    """Makes a rule's own figures from the validation split. One training has one observer, saved with its checkpoints."""

    def observe(self, seen: ValidationView) -> dict[str, float | None]:
        """Figures by name, for the rule to score and the log to keep; None for one that cannot be known yet."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training must remember, as tensors and plain data; names other than the Selector's own."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state; it holds the Selector's entries, too."""
