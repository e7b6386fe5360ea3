"""What a person sees while a model trains."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from icda.results.epoch import EpochRecord
from icda.terminal import make_console


class ProgressView:
    """Told of every step and epoch."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def run(self, description: str) -> None: ...
    def start(self, iteration: int, num_iterations: int) -> None: ...
    def step(self, epoch: int, num_epochs: int, loss: float, accuracy: float | None) -> None: ...
    def epoch(self, record: EpochRecord, num_epochs: int) -> None: ...


class QuietView(ProgressView):
    """Shows nothing."""


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
