"""Options that several benches share."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

Root = Annotated[str | None, tyro.conf.arg(help="Where datasets lie; ICDA_DATA, or ./data, if not given.")]


@dataclass
class OneFile:
    """Measure, and write a CSV file."""

    out: tyro.conf.Positional[Path]
    """CSV to write."""


@dataclass(frozen=True)
class StudyFile:
    """The file that a study fills; trainings that it holds are not run again."""

    out: Path
    """CSV file; rows are added as they come."""


@dataclass
class FinishedRuns:
    """Read off finished runs what they know of their training samples."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs, on a task with groups (strengths) or one that knows its wrong labels (mistakes)."""
    out: Path | None = None
    """CSV file to write (group_strengths.csv and mistakes.csv of benchmarks/results are ours)."""


def all_cores() -> int:
    return os.cpu_count() or 1
