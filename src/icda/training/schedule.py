"""Learning rates as a pure function of the epoch."""

from __future__ import annotations

import math

from icda.training.config import TrainConfig


def learning_rate(config: TrainConfig, epoch: float, epochs: int, whole: int | None = None) -> float:
    """The rate at `epoch` (fractional within an epoch) of a schedule over `epochs`.

    Steps fall at whole epochs, as everywhere in this field; warm-up and cosine move with every iteration. A stage with a
    schedule of its own is `epochs` of the `whole` training: milestones given as epochs are moved in proportion.
    """
    rate = config.learning_rate
    if config.schedule == "step":
        passed = sum(epoch >= _milestone_epoch(m, epochs, whole or epochs) for m in config.milestones)
        rate *= config.decay**passed
    elif config.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))
    if epoch < config.warmup_epochs:
        rate *= epoch / config.warmup_epochs
    return rate


def _milestone_epoch(milestone: float, epochs: int, whole: int) -> float:
    if milestone < 1:
        return round(milestone * epochs)
    return milestone if epochs == whole else round(milestone * epochs / whole)
