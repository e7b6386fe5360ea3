"""What is said of a training: before the first epoch, while it runs, and in its log."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from icda.data.task import Task
from icda.extras import require
from icda.models.base import FeatureClassifier
from icda.results.files import LOG, TENSORBOARD, write_atomically
from icda.results.run_result import EpochRecord
from icda.terminal import make_console


class ProgressView:
    """Told of every step and epoch; shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def run(self, description: str) -> None: ...
    def start(self, iteration: int, num_iterations: int) -> None: ...
    def step(self, epoch: int, num_epochs: int, loss: float, accuracy: float | None) -> None: ...
    def epoch(self, record: EpochRecord, num_epochs: int) -> None: ...


class TerminalView(ProgressView):
    """A bar with loss, accuracy and time left; a line per epoch where output is not a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or make_console(stderr=True)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.line = self.bar.add_task("starting", figures="", total=None)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def run(self, description: str) -> None:
        self.console.print(description, highlight=False, markup=False, soft_wrap=True)

    def start(self, iteration: int, num_iterations: int) -> None:
        self.bar.update(self.line, completed=iteration, total=num_iterations)

    def step(self, epoch: int, num_epochs: int, loss: float, accuracy: float | None) -> None:
        figures = f"loss {loss:.3f}" + ("" if accuracy is None else f"  accuracy {accuracy:.3f}")
        self.bar.update(self.line, advance=1, description=f"epoch {epoch + 1}/{num_epochs}", figures=figures)

    def epoch(self, record: EpochRecord, num_epochs: int) -> None:
        if self.console.is_terminal:
            return
        figures = {
            "loss": record.train_loss,
            "train accuracy": record.train_accuracy,
            "validation accuracy": record.validation.get("accuracy"),
        }
        shown = ", ".join(f"{name} {value:.4f}" for name, value in figures.items() if value is not None)
        self.console.print(f"epoch {record.epoch + 1}/{num_epochs}: {shown}", highlight=False)


class EpochLog:
    """Writes `log.jsonl`, one line per epoch; a resumed run starts from the epochs its checkpoint remembers."""

    def __init__(self, folder: Path, history: Sequence[EpochRecord], tensorboard: bool = False) -> None:
        self.path = folder / LOG
        write_atomically(self.path, "".join(_line(record) for record in history).encode())
        self._writer: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard", "TensorBoard logs")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=len(history))

    def write(self, record: EpochRecord) -> None:
        # Not through a link that somebody laid there since.
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(_line(record))
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _line(record: EpochRecord) -> str:
    return json.dumps(record.as_dict()) + "\n"


LISTED = 12  # classes; of more only the extremes are named


def describe_run(task: Task, model: str, networks: Sequence[FeatureClassifier], method: str) -> str:
    """Classes with their counts, the splits with their sizes, model, parameters and method."""
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in task.splits().items())
    numbers = [sum(value.numel() for value in network.parameters()) for network in networks]
    several = f"{len(networks)} times " if len(networks) > 1 else ""
    counts = task.class_counts.tolist()
    named = [f"{task.class_name(number)} {count:,}" for number, count in enumerate(counts)]
    order = sorted(range(len(counts)), key=counts.__getitem__)
    shown = ", ".join(named) if len(named) <= LISTED else f"from {named[order[0]]} to {named[order[-1]]}"
    return "\n".join(
        [
            f"task {task.name}: {sizes} samples",
            f"{task.num_classes} classes, training samples of each: {shown}",
            f"model {model}: {several}{numbers[0]:,} parameters; method {method}",
        ]
    )
