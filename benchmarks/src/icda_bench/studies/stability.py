"""Whether the plain recipe trains on few images: `icda train --data FOLDER --method icda`, all defaults, many seeds.

    python -m icda_bench.studies.stability --out benchmarks/results/stability.csv

The folders hold photos of CIFAR-10 (`ICDA_DATA`), the same number of each class. Images are read at 16 x 16, so that
many seeds can be run; everything else is the default. A run has diverged when training stopped because a loss, a weight
or a logit was no longer finite.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import tyro
from PIL import Image

from icda.data.datasets.cifar10 import load_cifar10
from icda.errors import IcdaError
from icda.training.config import TrainConfig
from icda.training.evaluation import evaluate_split
from icda.training.run import build, load_task, make_accelerator
from icda.training.trainer import Trainer
from icda_bench.markdown import markdown, spread

IMAGE_SIZE = 16
UNBOUNDED = 1e30  # a bound on mapped variances that is none


@dataclass(frozen=True)
class StabilityRow:
    """One training: whether it came to its end, and what it learned.

    `bound` says whether variances are bounded, `clip` whether gradients are clipped; `largest_loss` is that of the worst
    epoch (None in rows that were measured before it was kept).
    """

    images: int
    classes: int
    method: str
    bound: str
    clip: str
    seed: int
    diverged: bool
    largest_loss: float | None
    train_loss: float | None
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class Arguments:
    """Which trainings to run; those that the file holds already are not run again."""

    out: Path
    """CSV file; rows are added as they come."""
    seeds: int = 20
    """Seeds 0, 1, ... of each cell."""
    images: tuple[int, ...] = (40, 200, 1000)
    """Sizes of the folders."""
    classes: tuple[int, ...] = (2, 10)
    """Numbers of classes."""
    methods: tuple[str, ...] = field(default=("icda",))
    """Methods of `icda list methods`."""
    unbounded: bool = False
    """Let mapped variances grow without bound, as before version 0.2.0."""
    unclipped: bool = False
    """Leave gradients as they are, as `icda train --data` did before they were clipped by default."""


def make_folder(root: Path, num_images: int, num_classes: int) -> Path:
    """A folder per class with the first photos of that class."""
    photos = load_cifar10(None)
    folder = root / f"photos_{num_images}_{num_classes}"
    for label in range(num_classes):
        (folder / f"class{label}").mkdir(parents=True)
        chosen = (photos.labels == label).nonzero().flatten()[: num_images // num_classes]
        for place in chosen.tolist():
            Image.fromarray(photos.source.images[place].numpy()).save(folder / f"class{label}" / f"{place}.png")
    return folder


def train_once(
    folder: Path, method: str, seed: int, asked: Arguments, out: Path
) -> tuple[float | None, float | None, float | None]:
    """The largest and the last training loss of an epoch and the test accuracy; None when training diverged."""
    options: dict[str, Any] = {"variance_bound": UNBOUNDED} if asked.unbounded else {}
    config = TrainConfig(
        data=str(folder),
        method=method,
        seed=seed,
        image_size=IMAGE_SIZE,
        options=options,
        clip_norm=None if asked.unclipped else "auto",
        out=str(out),
    )
    task = load_task(config)
    networks, built = build(config, task)
    accelerator = make_accelerator(config.precision)
    trainer = Trainer(config, task, networks, built, config.folder(), accelerator)
    try:
        trainer.run()
        metrics, _ = evaluate_split(trainer.method, trainer.models, task, task.test, accelerator)
    except IcdaError as error:
        if "became" in str(error) or "diverged" in str(error):
            return None, None, None
        raise
    losses = [float(epoch.train_loss or 0) for epoch in trainer.history]
    return max(losses), losses[-1], float(metrics["accuracy"])


def measure(options: Arguments, known: Sequence[StabilityRow]) -> Iterator[StabilityRow]:
    """Seed 0 of all cells first, so that a study cut short has some of each."""
    have = {(row.images, row.classes, row.method, row.bound, row.clip, row.seed) for row in known}
    bound, clip = ("none" if off else "default" for off in (options.unbounded, options.unclipped))
    with tempfile.TemporaryDirectory() as scratch:
        folders: dict[tuple[int, int], Path] = {}
        for seed in range(options.seeds):
            for cell in [(n, c) for n in options.images for c in options.classes]:
                for method in options.methods:
                    if (*cell, method, bound, clip, seed) in have:
                        continue
                    if cell not in folders:
                        folders[cell] = make_folder(Path(scratch), *cell)
                    started, run = time.perf_counter(), Path(scratch) / f"{cell}{method}{seed}"
                    found = train_once(folders[cell], method, seed, options, run)
                    seconds = round(time.perf_counter() - started, 1)
                    yield StabilityRow(*cell, method, bound, clip, seed, found[0] is None, *found, seconds)


def read_stability(path: Path) -> list[StabilityRow]:
    with path.open(newline="") as file:
        return [_parse(row) for row in csv.DictReader(file)]


def stability_table(rows: Sequence[StabilityRow]) -> str:
    """For each folder and method: how many trainings diverged, how high losses rose, and the accuracy of the others."""
    body = []
    keys = dict.fromkeys((row.images, row.classes, row.method, row.bound, row.clip) for row in rows)
    for key in sorted(keys):
        mine = [row for row in rows if (row.images, row.classes, row.method, row.bound, row.clip) == key]
        accuracies = [100 * row.test_accuracy for row in mine if row.test_accuracy is not None]
        diverged = f"{sum(row.diverged for row in mine)} of {len(mine)}"
        highest = [row.largest_loss for row in mine if row.largest_loss is not None]
        worst = f"{max(highest):.1f} ({len(highest)})" if highest else ""
        body.append([*map(str, key), diverged, worst, spread(accuracies, digits=1)])
    header = ["images", "classes", "method", "bound", "clipping", "diverged", "largest loss of an epoch"]
    return markdown([*header, "test accuracy of the others, %"], body)


def main(options: Arguments) -> None:
    known = read_stability(options.out) if options.out.exists() else []
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(StabilityRow)])
        if not known:
            writer.writeheader()
        for row in measure(options, known):
            writer.writerow(asdict(row))
            file.flush()
    print(stability_table(read_stability(options.out)))


def _parse(row: dict[str, str]) -> StabilityRow:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return StabilityRow(
        int(row["images"]),
        int(row["classes"]),
        row["method"],
        row["bound"],
        row["clip"],
        int(row["seed"]),
        row["diverged"] == "True",
        number("largest_loss"),
        number("train_loss"),
        number("test_accuracy"),
        float(row["seconds"]),
    )


if __name__ == "__main__":
    main(tyro.cli(Arguments))
