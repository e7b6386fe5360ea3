"""SIGKILL at random moments, while a file is being written, and between the result and the report."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from outcome import Outcome

import training
from training import Run, count_scraps, differs, finish, lacks_files, whole, words

PER_RUN = 8  # kills of one run before it is left to end


def killed_runs(out: Path, number: int, seed: int) -> Outcome:
    draw, outcome, moments = random.Random(seed), Outcome("killed"), Counter[str]()
    trial = 0
    while outcome.faults < number:
        folder = out / f"killed{trial}"
        kinds = ["at a random moment", "while a file was written", "between result and report"]
        for kill in range(PER_RUN):
            kind = kinds[2] if kill == PER_RUN - 1 else kinds[kill % 2]
            if not _kill(folder, trial, _moment(kind, folder, draw)):
                break
            moments[kind] += 1
        code, run = finish(folder, trial)
        outcome.obscure += run.is_obscure(code)
        outcome.different += code != 0 or differs(folder, whole(out, trial))
        outcome.missing += lacks_files(folder)
        outcome.scraps += count_scraps(folder)
        outcome.faults = sum(moments.values())
        trial += 1
    outcome.detail = f"{', '.join(f'{count} {kind}' for kind, count in moments.items())}, in {trial} runs"
    return outcome


def _moment(kind: str, folder: Path, draw: random.Random) -> Callable[[], bool]:
    if kind == "at a random moment":
        end = time.monotonic() + draw.uniform(0, 0.6 * training.duration)
        return lambda: time.monotonic() >= end
    if kind == "while a file was written":
        old = set(_parts(folder))
        return lambda: bool(set(_parts(folder)) - old)
    return (folder / "result.json").exists


def _parts(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".part")]  # noqa: PTH208 - faster
    except FileNotFoundError:
        return []


def _kill(folder: Path, trial: int, has_come: Callable[[], bool]) -> bool:
    """Whether a run was killed at the moment, and not over before."""
    run = Run.start(words(trial, folder, "--resume"), folder.with_suffix(".txt"))
    while not has_come():
        if run.ended() is not None:
            return False
        time.sleep(0.0002)
    os.kill(run.pid, signal.SIGKILL)
    return run.wait() == -signal.SIGKILL
