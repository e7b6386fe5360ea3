"""What commands say: plain words, tables of groups, and a bar while inputs are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from icda.errors import InputError
from icda.terminal import make_console

if TYPE_CHECKING:
    from icda.results import RunResult


NAMED = 20  # names that a list on the terminal shows


def say(words: str, stderr: bool = False) -> None:
    """Print words as they are, without colour or line breaks of our own."""
    make_console(stderr=stderr).print(words, highlight=False, markup=False, soft_wrap=True)


def tell(words: str) -> None:
    """What happens meanwhile, beside what the command is asked for and may be piped on: to stderr."""
    say(words, stderr=True)


def counted(names: Sequence[object]) -> str:
    """The first names in one line, and a sign that there are more."""
    return ", ".join(map(str, names[:NAMED])) + (" ..." if len(names) > NAMED else "")


@dataclass
class Bar:
    """A bar with time left; a line each tenth where output is not a terminal."""

    noun: str
    console: Console = field(default_factory=lambda: make_console(stderr=True))

    def __enter__(self) -> Bar:
        columns = (SpinnerColumn(), TextColumn(self.noun), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.line = self.bar.add_task(self.noun, total=None)
        self.tenth = 0
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, done: int, total: int) -> None:
        self.bar.update(self.line, completed=done, total=total)
        if not self.console.is_terminal and 10 * done // total > self.tenth:
            self.tenth = 10 * done // total
            self.console.print(f"{done}/{total} {self.noun}", highlight=False)


def listed(heading: str, names: Sequence[object]) -> list[str]:
    """A line for each of the first names below a heading, and how many more there are; nothing without names."""
    more = [f"  and {len(names) - NAMED} more"] if len(names) > NAMED else []
    return [f"{len(names)} {heading}:", *(f"  {name}" for name in names[:NAMED]), *more] if len(names) else []


def check_seed(seed: int) -> None:
    """Refuse a seed that generators of random numbers do not take."""
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed is {seed}, expected 0 to {2**32 - 1}.")


def check_jobs(command: str, on: str, jobs: int | None) -> None:
    """Refuse --jobs where no Ray would start them."""
    if jobs is not None and on != "ray":
        raise InputError(f"--jobs are processes of a Ray, and {command} is --on {on}: add --on ray, or leave it out.")


SHOWN = 50


def make_table(title: str, words: Sequence[str], figures: Sequence[str]) -> Table:
    """A table whose first columns are words, to the left, and the others figures, to the right."""
    table = Table(title=title, title_justify="left")
    for name in (*words, *figures):
        table.add_column(name, justify="left" if name in words else "right", overflow="fold")
    return table


def group_table(result: RunResult) -> Table | None:
    """Every group with its size, the worst first; one that is too small to judge is shown as such. None without groups."""
    from icda.metrics.figures import FEWEST
    from icda.report.formatting import percent

    shares = (result.metrics or {}).get("per_group_accuracy") or {}
    sizes = dict(zip(result.group_names or (), result.group_samples or (), strict=False))
    rows = [(name, sizes[name], share) for name, share in shares.items() if share is not None and sizes.get(name)]
    if not rows:
        return None
    rows.sort(key=lambda row: (row[1] < FEWEST, row[2], row[0]))
    more = f", the worst {SHOWN} of {len(rows)}" if len(rows) > SHOWN else ""
    table = make_table(f"groups (class x attribute){more}", ["group"], ["samples", "right"])
    for name, count, share in rows[:SHOWN]:
        shown = percent(share) if count >= FEWEST else f"{percent(share)} (too few to judge)"
        table.add_row(Text(name), str(count), Text(shown))
    return table
