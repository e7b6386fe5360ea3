"""cRT: learn the features from the data as they come, then a new classifier from balanced classes."""

from typing import Any

from icda.errors import InputError
from icda.methods.base import METHODS, Method, Setup, Stage, checked
from icda.ranges import OpenShare


@METHODS.register("crt")
class ClassifierRetraining(Method):
    """Train with cross entropy, then freeze the encoder and train a new head on class-balanced batches.

    Cross entropy takes `first_stage` of the epochs. Then every class is drawn equally often, the head starts from random
    weights, and optimiser and schedule start again. The encoder keeps its BatchNorm statistics, too. Both stages have an
    epoch at least.

    Reference: Kang et al., "Decoupling representation and classifier for long-tailed recognition", ICLR 2020.
    """

    @checked
    def __init__(self, setup: Setup, *, first_stage: OpenShare = 0.9) -> None:
        super().__init__()
        self.first_stage = first_stage

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("crt", epochs, self.first_stage)
        new_head: dict[str, Any] = {"trains": "head", "sampling": "class_balanced", "reset_head": True}
        return [Stage(first, "representation", restart=True), Stage(second, "classifier", restart=True, **new_head)]


def two_stages(name: str, epochs: int, first_stage: float) -> tuple[int, int]:
    """The epochs of two stages, one at least for each."""
    if epochs < 2:
        raise InputError(f"{name} trains in two stages and needs 2 epochs or more, got {epochs}.")
    first = min(max(1, round(epochs * first_stage)), epochs - 1)
    return first, epochs - first
