"""What is left of signed Meta-ICDA when training goes on: its parts taken away, and epochs chosen on metadata.

    python -m icda_bench.studies.long_training --out benchmarks/results/long_training.csv

Every training is watched on the test split, which decides nothing: one training shows its last epoch and the one that
`--selection metadata_nll` keeps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from icda.training import TrainConfig, train
from icda.training.run import load_task
from icda_bench.markdown import markdown, spread
from icda_bench.studies.row_file import append_rows, read_row_file

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
    """Which trainings to run; those that the file holds already are not run again."""

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


def measure(options: Arguments, known: Sequence[LongTrainingRow]) -> Iterator[LongTrainingRow]:
    have = {(row.form, row.seed, row.epochs) for row in known}
    for epochs in options.epochs:
        for form in options.forms:
            for seed in options.seeds:
                if (form, seed, epochs) not in have:
                    yield train_watched(form, seed, epochs)


def long_training_table(rows: Sequence[LongTrainingRow]) -> str:
    """Test accuracy of the last epoch beside that of the epoch chosen on metadata, by settings."""
    body = []
    for form, epochs in sorted(
        {(row.form, row.epochs) for row in rows}, key=lambda key: (key[1], list(FORMS).index(key[0]))
    ):
        mine = [row for row in rows if (row.form, row.epochs) == (form, epochs)]
        seeds = ", ".join(str(row.seed) for row in sorted(mine, key=lambda row: row.seed))
        points = [spread([100 * getattr(row, name) for row in mine], digits=1) for name in ("last", "selected")]
        body.append([form, str(epochs), seeds, *points, spread([row.auroc_wrong for row in mine], digits=2)])
    return markdown(
        ["settings", "epochs", "seeds", "last epoch", "lowest loss on metadata", "AUROC for wrong labels, last epoch"],
        body,
    )


def main(options: Arguments) -> None:
    append_rows(options.out, LongTrainingRow, measure(options, read_row_file(options.out, LongTrainingRow)))
    print(long_training_table(read_row_file(options.out, LongTrainingRow)))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
