"""What a second core brings to embed, audit and fit.

Every row is measured in a process of its own, whose threads are limited before torch is loaded.
"""

import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path

from icda_bench.cost.child import in_child
from icda_bench.options import OneFile
from icda_bench.rows import Row, publish

IMAGES, BATCH = 512, 2  # chunks of 32 images
SAMPLES, FEATURES, CLASSES = 20_000, 256, 10
PLANS = {"embed": ((1, 1), (1, 2), (2, 1)), "audit": ((1, 1), (1, 2)), "fit": ((1, 1), (1, 2))}


Progress = Callable[[int, int], None]
Work = Callable[[int, Progress], None]


def measure_cores(tasks: Sequence[str] = tuple(PLANS), rounds: int = 3) -> list[Row]:
    """All rows, the median of `rounds`; the ways of a task take turns, so that neighbours disturb them alike."""
    rows: list[Row] = []
    for task in tasks:
        runs = [[_measured(task, *plan) for plan in PLANS[task]] for _ in range(rounds)]
        middle = [sorted(way, key=itemgetter("per_second"))[rounds // 2] for way in zip(*runs, strict=True)]
        found = [{**row, "speedup": round(row["per_second"] / middle[0]["per_second"], 2)} for row in middle]
        for row in found:
            print("{task}, {processes} x {threads_each}: {per_second:.1f} per second, {speedup:.2f} x".format(**row))
        rows += found
    return rows


def _measured(task: str, processes: int, threads: int) -> Row:
    limits = {"OMP_NUM_THREADS": str(processes * threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return in_child(run_task, task, processes, threads, **limits)


def run_task(task: str, processes: int, threads: int) -> Row:
    """A task with so many processes of so many threads each, measured in this process.

    `seconds` are those of the whole task, `processor_seconds` those that all its threads and processes worked: where they
    stay the same, only neighbours keep more threads from being as many times faster. The rate of embed is that after every
    process has done its first chunk: the start of processes takes some seconds, once.
    """
    import torch

    torch.set_num_threads(processes * threads)
    with tempfile.TemporaryDirectory() as folder:
        work, items, data = {"embed": _embed, "audit": _audit, "fit": _fit}[task](Path(folder))
        marks, worked = [(time.perf_counter(), 0)], _worked()
        work(processes, lambda done, _: marks.append((time.perf_counter(), done)))
        marks.append((time.perf_counter(), items))
    (begun, _), (ready, before), (ended, _) = marks[0], marks[processes if len(marks) > 2 else 0], marks[-1]
    return {
        **{"task": task, "data": data, "processes": processes, "threads_each": threads, "items": items},
        "seconds": round(ended - begun, 2),
        "processor_seconds": round(_worked() - worked, 2),
        "per_second": round((items - before) / (ended - ready), 1),
    }


def _worked() -> float:
    """Processor seconds of this process and of those it has started and seen end."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def _embed(folder: Path) -> tuple[Work, int, str]:
    from PIL import Image

    from icda.data.datasets.cifar_files import read_grids
    from icda.data.embedding import embed
    from icda.data.own.reading import read_samples
    from icda.data.registry import data_root
    from icda.engines import make_engine
    from icda.models.encoders import create_encoder

    read = read_grids(data_root() / "cifar10")
    for number in range(IMAGES):
        place = folder / "images" / str(read.test_labels[number])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(read.test_images[number]).save(place / f"{number}.png")
    samples, encoder = read_samples(folder / "images"), create_encoder(None, "image")

    def work(processes: int, progress: Progress) -> None:
        with make_engine("local", processes) as engine:
            embed(samples, encoder, folder / "features.npz", batch_size=BATCH, engine=engine, progress=progress)

    return work, IMAGES, f"CIFAR-10 test images, {encoder.name}, {encoder.image_size} px"


def _audit(_: Path) -> tuple[Work, int, str]:
    from icda.auditing import audit

    return _on_made_rows(audit, SAMPLES, CLASSES)


def _fit(_: Path) -> tuple[Work, int, str]:
    from icda.estimators.classifier import ICDAClassifier

    return _on_made_rows(ICDAClassifier().fit, 2 * SAMPLES, 5 * CLASSES)


def _on_made_rows(function: Callable[..., object], samples: int, classes: int) -> tuple[Work, int, str]:
    from icda_bench.cost.fit_time import synthetic_rows

    X, y = synthetic_rows((samples, FEATURES, classes))

    def work(*_: object) -> None:
        function(X, y)

    return work, samples, f"synthetic, {FEATURES} features, {classes} classes"


def run(options: OneFile) -> None:
    publish("cores", measure_cores(), options.out)
