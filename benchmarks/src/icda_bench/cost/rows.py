"""Measured rows as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from icda.training.environment import describe_environment


def write_csv(rows: Sequence[Any], path: Path) -> None:
    """The rows with the machine they were measured on."""
    _write(rows, path, "w")


def append_csv(rows: Sequence[Any], path: Path) -> None:
    """The same, after those that are there: each row keeps the machine that it was measured on."""
    _write(rows, path, "a")


def _write(rows: Sequence[Any], path: Path, mode: Literal["w", "a"]) -> None:
    environment = describe_environment()
    machine = {name: environment[name] for name in ("processor", "cores", "threads", "torch", "commit")}
    path.parent.mkdir(parents=True, exist_ok=True)
    has_header = mode == "a" and path.exists()
    with path.open(mode, newline="") as file:
        writer = csv.DictWriter(file, [*asdict(rows[0]), *machine], lineterminator="\n")
        if not has_header:
            writer.writeheader()
        writer.writerows({**asdict(row), **machine} for row in rows)
