"""What is left of signed Meta-ICDA when training goes on: its parts taken away, and epochs chosen on metadata.

Every training is watched on the test split, which decides nothing: one training shows its last epoch and the one that
`--selection metadata_nll` keeps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from icda.training import TrainConfig, train
from icda.training.run import load_task
from icda_bench.markdown import grouped, markdown, percent, spread
from icda_bench.rows import fill

TASK = "digits_flip_noise"
FORMS: dict[str, dict[str, Any]] = {
    "memory, beta 10": {},
    "no memory, beta 5": {"memory": False, "beta": 5.0},
    "no memory, beta 20": {"memory": False, "beta": 20.0},
    "memory, beta 5": {"beta": 5.0},
    "memory, beta 5, withdrawal 3": {"beta": 5.0, "withdrawal": 3.0},
}


@dataclass(frozen=True)
class LongTrainingRow:
    """One training: test accuracy of its last epoch and of the epoch with the lowest loss on metadata."""

    form: str
    seed: int
    epochs: int
    last: float
    selected: float
    selected_epoch: int
    auroc_wrong: float  # of a low strength for wrong labels, in the last epoch


@dataclass(frozen=True)
class Arguments:
    """Train signed Meta-ICDA for long, with and without its parts; trainings that the file holds are not run again."""

    out: Path
    """CSV file; rows are added as they come."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; settings were chosen on 0 and 1."""
    epochs: tuple[int, ...] = (120,)
    """Lengths of training."""
    forms: tuple[str, ...] = tuple(FORMS)
    """Settings of signed Meta-ICDA, of those named here."""


def train_watched(form: str, seed: int, epochs: int) -> LongTrainingRow:
    """Train with the test split in the place of validation: its accuracy after every epoch is in the history."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"task": TASK, "method": "meta_icda_signed", "selection": "metadata_nll"}
        config = TrainConfig(**settings, options=FORMS[form], seed=seed, epochs=epochs, out=folder)
        task = load_task(config)
        result = train(config, task=replace(task, validation=task.test))
    history, chosen = result.history or [], result.selected_epoch
    assert chosen is not None, "a finished run has one"
    watched = [float(record["validation_accuracy"]) for record in history]
    return LongTrainingRow(
        form, seed, epochs, watched[-1], watched[chosen], chosen, float(history[-1]["strength_auroc_wrong"])
    )


def long_training_table(rows: Sequence[LongTrainingRow]) -> str:
    """Test accuracy of the last epoch beside that of the epoch chosen on metadata, by settings."""
    body = []
    cells = grouped(rows, lambda row: (row.epochs, list(FORMS).index(row.form)))
    for (epochs, _), mine in sorted(cells.items()):
        seeds = ", ".join(map(str, sorted(row.seed for row in mine)))
        figures = (
            percent(mine, "last"),
            percent(mine, "selected"),
            spread([row.auroc_wrong for row in mine], digits=2),
        )
        body.append([mine[0].form, str(epochs), seeds, *figures])
    titles = ["settings", "epochs", "seeds", "last epoch", "lowest loss on metadata"]
    return markdown([*titles, "AUROC for wrong labels, last epoch"], body)


def run(options: Arguments) -> None:
    cells = [(form, seed, epochs) for epochs in options.epochs for form in options.forms for seed in options.seeds]
    print(long_training_table(fill(options.out, LongTrainingRow, cells, train_watched)))
