"""Measured rows as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icda.training.environment import describe_environment


def write_csv(rows: Sequence[Any], path: Path) -> None:
    """The rows with the machine they were measured on."""
    environment = describe_environment()
    machine = {name: environment[name] for name in ("processor", "cores", "threads", "torch", "commit")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*asdict(rows[0]), *machine], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(row), **machine} for row in rows)
