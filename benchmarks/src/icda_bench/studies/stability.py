"""Whether the plain recipe trains on few images: `icda train --data FOLDER --method icda`, all defaults, many seeds.

The folders hold photos of CIFAR-10 (`ICDA_DATA`), the same number of each class. Images are read at 16 x 16, so that
many seeds can be run; everything else is the default. A run has diverged when training stopped because a loss, a weight
or a logit was no longer finite.
"""

import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from icda.data.datasets.cifar import load_cifar10
from icda.errors import IcdaError
from icda.training import TrainConfig, train
from icda_bench.markdown import columns, grouped, markdown, numbers, percent
from icda_bench.options import StudyFile
from icda_bench.rows import Row, fill

IMAGE_SIZE = 16
CELL = ("images", "classes", "method", "bound", "clip", "seed")
UNBOUNDED = 1e30  # a bound on mapped variances that is none


@dataclass(frozen=True)
class Arguments(StudyFile):
    """Train on small folders of photos with the defaults; trainings that the file holds are not run again."""

    seeds: int = 20
    """Seeds 0, 1, ... of each cell."""
    images: tuple[int, ...] = (40, 200, 1000)
    """Sizes of the folders."""
    classes: tuple[int, ...] = (2, 10)
    """Numbers of classes."""
    methods: tuple[str, ...] = ("icda",)
    """Methods of `icda list methods`."""
    unbounded: bool = False
    """Let mapped variances grow without bound, as before version 0.2.0."""
    unclipped: bool = False
    """Leave gradients as they are, as `icda train --data` did before they were clipped by default."""


def make_folder(root: Path, num_images: int, num_classes: int) -> Path:
    """A folder per class with the first photos of that class, made once."""
    folder = root / f"photos_{num_images}_{num_classes}"
    if folder.exists():
        return folder
    photos = load_cifar10(None)
    for label in range(num_classes):
        (folder / f"class{label}").mkdir(parents=True)
        chosen = (photos.labels == label).nonzero().flatten()[: num_images // num_classes]
        for place in chosen.tolist():
            Image.fromarray(photos.source.images[place].numpy()).save(folder / f"class{label}" / f"{place}.png")
    return folder


def measure(images: int, classes: int, method: str, bound: str, clip: str, seed: int, scratch: Path) -> Row:
    """Whether one training came to its end, and what it learned.

    `bound` says whether variances are bounded, `clip` whether gradients are clipped; `largest_loss` is that of the worst
    epoch (empty in rows that were measured before it was kept).
    """
    started = time.perf_counter()
    config = TrainConfig(
        data=str(make_folder(scratch, images, classes)),
        method=method,
        seed=seed,
        image_size=IMAGE_SIZE,
        options={"variance_bound": UNBOUNDED} if bound == "none" else {},
        clip_norm=None if clip == "none" else "auto",
        out=str(scratch / f"run_{images}_{classes}_{method}_{seed}"),
    )
    largest, last, accuracy = train_once(config)
    figures = {"diverged": largest is None, "largest_loss": largest, "train_loss": last, "test_accuracy": accuracy}
    return {**figures, "seconds": round(time.perf_counter() - started, 1)}


def train_once(config: TrainConfig) -> tuple[float | None, float | None, float | None]:
    """The largest and the last training loss of an epoch and the test accuracy; None when training diverged."""
    try:
        result = train(config)
    except IcdaError as error:
        if "became" in str(error) or "diverged" in str(error):
            return None, None, None
        raise
    losses = [float(epoch.train_loss or 0) for epoch in result.history or ()]
    return max(losses), losses[-1], result.metric("accuracy")


def stability_table(rows: Iterable[Row]) -> str:
    """For each folder and method: how many trainings diverged, how high losses rose, and the accuracy of the others."""
    body = []
    places = grouped(rows, columns(*CELL[:-1]))
    for key in sorted(places, key=lambda key: (*map(int, key[:2]), *key[2:])):
        mine = places[key]
        diverged = f"{sum(row['diverged'] == 'True' for row in mine)} of {len(mine)}"
        highest = numbers(mine, "largest_loss")
        worst = f"{max(highest):.1f} ({len(highest)})" if highest else ""
        body.append([*key, diverged, worst, percent(mine, "test_accuracy")])
    header = ["images", "classes", "method", "bound", "clipping", "diverged", "largest loss of an epoch"]
    return markdown([*header, "test accuracy of the others, %"], body)


def run(options: Arguments) -> None:
    """Seed 0 of all cells first, so that a study cut short has some of each."""
    limits = tuple("none" if off else "default" for off in (options.unbounded, options.unclipped))
    folders = [(images, classes) for images in options.images for classes in options.classes]
    cells = [
        (*folder, method, *limits, seed)
        for seed in range(options.seeds)
        for folder in folders
        for method in options.methods
    ]
    with tempfile.TemporaryDirectory() as scratch:
        rows = fill(options.out, CELL, cells, partial(measure, scratch=Path(scratch)))
    print(stability_table(rows))
