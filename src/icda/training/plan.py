"""The stages of a training laid end to end, their learning rates, where the training stands, and the seeds of its draws."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from icda.methods.base import Stage, StepResult
from icda.ranges import NotNegativeInt
from icda.settings import check
from icda.training.config import TrainConfig


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


def learning_rate(config: TrainConfig, epoch: float, epochs: int, whole: int | None = None) -> float:
    """The rate at `epoch` (fractional within an epoch) of a schedule over `epochs`.

    Steps fall at whole epochs, as everywhere in this field; warm-up and cosine move with every iteration. A stage with a
    schedule of its own is `epochs` of the `whole` training: milestones given as epochs are moved in proportion.
    """
    rate = config.learning_rate
    if config.schedule == "step":
        whole = whole or epochs
        given = [m if epochs == whole else round(m * epochs / whole) for m in config.milestones]
        at = [round(m * epochs) if m < 1 else place for m, place in zip(config.milestones, given, strict=True)]
        rate *= config.decay ** sum(epoch >= milestone for milestone in at)
    elif config.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
    if epoch < config.warmup_epochs:
        rate *= epoch / config.warmup_epochs
    return rate


class Tally:
    """Sums over the steps of an epoch: loss, hits, samples, and whatever a method reports beside them."""

    def __init__(self, sums: dict[str, float] | None = None) -> None:
        self.sums = dict(sums or {})

    def add(self, result: StepResult, targets: Tensor) -> None:
        count = len(targets)
        self._add("samples", count)
        self._add("loss", float(result.loss) * count)
        if result.logits is not None:
            self._add("judged", count)
            self._add("hits", int((result.logits.argmax(1) == targets).sum()))
        for name, value in result.extra.items():
            self._add(f"extra.{name}", value * count)
            self._add(f"count.{name}", count)

    def loss(self) -> float:
        return self.sums.get("loss", 0.0) / max(self.sums.get("samples", 0), 1)

    def accuracy(self) -> float | None:
        judged = self.sums.get("judged", 0)
        return self.sums["hits"] / judged if judged else None

    def extras(self) -> dict[str, float]:
        """Means over the steps that reported a figure."""
        names = [name.removeprefix("extra.") for name in self.sums if name.startswith("extra.")]
        return {name: self.sums[f"extra.{name}"] / self.sums[f"count.{name}"] for name in names}

    def reduced(self, accelerator: Accelerator) -> Tally:
        """The tally of all processes together."""
        if accelerator.num_processes == 1 or not self.sums:
            return self
        values = torch.tensor(list(self.sums.values()), dtype=torch.float64, device=accelerator.device)
        summed = accelerator.reduce(values, reduction="sum").tolist()
        return Tally(dict(zip(self.sums, summed, strict=True)))

    def _add(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0) + value


@dataclass
class Position:
    """Stage, epoch and batch to be trained next, and the iterations done."""

    stage: NotNegativeInt = 0
    epoch: NotNegativeInt = 0
    batch: NotNegativeInt = 0
    iteration: NotNegativeInt = 0
    tally: Tally = field(default_factory=Tally)

    def next_epoch(self) -> None:
        self.epoch += 1
        self.batch = 0
        self.tally = Tally()

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "tally": self.tally.sums}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Position:
        check(state, {**get_type_hints(cls, include_extras=True), "tally": dict[str, float]}, "a position's ")
        return cls(**{**state, "tally": Tally(state["tally"])})


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch. Data order and augmentation have generators of their own."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """torch's generators: all that a training step of ours draws from."""
    cuda = {"cuda": torch.cuda.get_rng_state_all()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
