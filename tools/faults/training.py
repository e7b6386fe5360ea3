"""Short trainings as forks of this process (importing torch takes longer than they do), and how two of them compare."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from icda.cli.main import main
from icda.training.checkpoint import load_checkpoint

TASK = ["--task", "digits_lt", "--model", "linear", "--epochs", "3", "--batch-size", "64", "--checkpoint-every", "1"]
METHODS = {
    0: ["--method", "icda", "--selection", "validation_accuracy"],
    1: ["--method", "risda_two_stage", "--set", "first_stage=0.5"],
    2: ["--method", "ce"],
}
UNRELATED = {"seconds", "environment", "config"}  # differ between two runs that are otherwise the same
duration = 1.0  # seconds of an undisturbed run, once measured


def words(seed: int, folder: Path, *how: str) -> list[str]:
    """The command that trains one of the three small runs into a folder."""
    return ["train", *TASK, *METHODS[seed % 3], "--seed", str(seed % 3), "--quiet", "--out", str(folder), *how]


@dataclass
class Run:
    """A training in a process of its own. What it printed is in a file."""

    pid: int
    printed: Path

    @classmethod
    def start(cls, command: list[str], printed: Path, prepare: Callable[[], None] | None = None) -> Run:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                sys.stdout = sys.stderr = printed.open("w")
                if prepare is not None:
                    prepare()
                code = main(command)
            finally:
                sys.stdout.flush()
                os._exit(code)
        return cls(pid, printed)

    def ended(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def said(self) -> str:
        return self.printed.read_text(errors="replace")

    def is_obscure(self, code: int) -> bool:
        """Whether it failed in another way than by one sentence."""
        text = self.said()
        return "Traceback" in text or (code != 0 and "icda: " not in text)


def make_whole_runs(out: Path) -> None:
    """The undisturbed runs. The first of them imports what the forks then need not import again."""
    global duration
    torch.set_num_threads(1)
    for _ in range(2):
        for seed in METHODS:
            started = time.monotonic()
            assert main(words(seed, whole(out, seed), "--overwrite")) == 0
            duration = time.monotonic() - started


def whole(out: Path, seed: int) -> Path:
    return out / f"whole{seed % 3}"


def finish(folder: Path, seed: int) -> tuple[int, Run]:
    """Resume a run to its end, undisturbed."""
    run = Run.start(words(seed, folder, "--resume"), folder.with_suffix(".txt"))
    return run.wait(), run


def differs(one: Path, other: Path) -> bool:
    """Whether checkpoint, model, result or log differ in anything but times, machine and place."""
    for name in ("checkpoint.pt", "model.pt"):
        if not _equal(load_checkpoint(one / name), load_checkpoint(other / name)):
            return True
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
    logs = [[json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (one, other)]
    return not (_equal(*results) and _equal(*logs))


def lacks_files(folder: Path) -> bool:
    return not all((folder / name).is_file() for name in ("report.html", "config.yaml", "explanations.json"))


def count_scraps(folder: Path) -> int:
    return sum(1 for path in folder.iterdir() if path.name.startswith("."))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one.keys() - UNRELATED)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)
