"""The stages of a training laid end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icda.methods.base import Stage
from icda.training.config import TrainConfig
from icda.training.schedule import learning_rate


@dataclass(frozen=True)
class Plan:
    """Which stage an epoch belongs to, and how many epochs and iterations there are in all."""

    stages: tuple[Stage, ...]
    num_iterations: int

    @classmethod
    def of(cls, stages: Sequence[Stage], batches_per_epoch: Callable[[Stage], int]) -> Plan:
        return cls(tuple(stages), sum(stage.epochs * batches_per_epoch(stage) for stage in stages))

    @property
    def num_epochs(self) -> int:
        return self.end(len(self.stages) - 1)

    def start(self, number: int) -> int:
        """The first epoch of a stage."""
        return sum(stage.epochs for stage in self.stages[:number])

    def end(self, number: int) -> int:
        """The epoch after the last one of a stage."""
        return self.start(number + 1)

    def learning_rate(self, config: TrainConfig, number: int, epoch: float) -> float:
        """The rate of a stage at `epoch` (fractional within an epoch): of its own schedule, or of the whole training's."""
        stage = self.stages[number]
        if stage.restart:
            # Of the run's epochs, not of all stages': one that comes on top of them leaves the others' milestones alone.
            rate = learning_rate(config, epoch - self.start(number), stage.epochs, config.epochs)
        else:
            rate = learning_rate(config, epoch, self.num_epochs)
        if stage.learning_rate is not None:
            rate *= stage.learning_rate / config.learning_rate
        return rate
