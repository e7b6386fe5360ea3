"""What a table gains that reports the best test epoch: under wrong labels the last epoch is far from the best.

The best epoch by test accuracy is no fair figure: nobody has the test set while training. It is here because tables of
noise papers are often made so, and can then not be compared with last epochs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from icda.training import TrainConfig, train
from icda.training.run import load_task
from icda_bench.markdown import grouped, markdown, percent
from icda_bench.rows import fill

METHODS = {"cross_entropy": "CE", "icda": "ICDA"}
RECIPES: dict[str, dict[str, Any]] = {  # the recipes of the tables
    "digits_flip_noise": {"model": "small_cnn", "epochs": 30},
    "cifar10_flip_40_small": {
        "model": "resnet8",
        "epochs": 30,
        "batch_size": 64,
        "learning_rate": 0.1,
        "schedule": "cosine",
    },
}


@dataclass(frozen=True)
class BestEpochRow:
    """Test accuracies of one training: at its end, and in the epoch where it was highest."""

    task: str
    method: str
    seed: int
    last: float
    best: float
    best_epoch: int


@dataclass(frozen=True)
class Arguments:
    """What a table gains that reports the best test epoch; trainings that the file holds are not run again."""

    out: Path
    """CSV file; rows are added as they come."""
    seeds: int = 3
    """Seeds 0, 1, ... of each cell."""
    tasks: tuple[str, ...] = tuple(RECIPES)
    """Tasks with wrong labels, of those with a recipe here."""


def train_watched(task_name: str, method: str, seed: int) -> BestEpochRow:
    """Train with the test split in the place of validation: its accuracy after every epoch is in the history."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(task=task_name, method=method, seed=seed, out=folder, **RECIPES[task_name])
        task = load_task(config)
        result = train(config, task=replace(task, validation=task.test))
    watched = [float(record["validation_accuracy"]) for record in result.history or ()]
    best = max(watched)
    return BestEpochRow(task_name, method, seed, watched[-1], best, watched.index(best))


def best_epoch_table(rows: Sequence[BestEpochRow]) -> str:
    """Test accuracy of the last epoch beside that of the best, which nobody could have chosen."""
    cells = grouped(rows, lambda row: (row.task, row.method))
    body = [
        [task, METHODS[method], percent(mine, "last"), percent(mine, "best")] for (task, method), mine in cells.items()
    ]
    return markdown(["task", "method", "last epoch", "best test epoch, not a fair figure"], body)


def run(options: Arguments) -> None:
    cells = [(task, method, seed) for seed in range(options.seeds) for task in options.tasks for method in METHODS]
    print(best_epoch_table(fill(options.out, BestEpochRow, cells, train_watched)))
