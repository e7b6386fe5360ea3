"""Options that several benches share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import tyro

from icda.errors import InputError

Root = Annotated[str | None, tyro.conf.arg(help="Where datasets lie; ICDA_DATA, or ./data, if not given.")]


def all_cores() -> int:
    return os.cpu_count() or 1


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that a bench does not have."""
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"unknown {what}: {', '.join(unknown)}. Known: {', '.join(known)}.")
