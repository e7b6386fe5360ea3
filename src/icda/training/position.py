"""Where a training stands, small enough to go into every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import torch
from accelerate import Accelerator
from torch import Tensor

from icda.methods.base import StepResult
from icda.ranges import NotNegativeInt
from icda.settings import check


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

    def zeroed(self) -> Tally:
        """The same names with nothing counted: ranks can only be reduced when they count the same things."""
        return Tally(dict.fromkeys(self.sums, 0))

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
