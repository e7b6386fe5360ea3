"""Two trainings with one folder, forced with SIGSTOP, started together, or left over from a killed torchrun."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from outcome import Outcome

import training
from training import TASK, Run, count_scraps, differs, lacks_files, whole, words

WAYS: tuple[tuple[str, ...], ...] = ((), ("--resume",), ("--overwrite",))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "icda.cli.main"]


def two_writers(out: Path, number: int, seed: int) -> Outcome:
    draw, outcome, stopped = random.Random(seed), Outcome("two writers"), 0
    for trial in range(number):
        folder = out / f"pair{trial}"
        first = Run.start(words(trial, folder), out / f"pair{trial}a.txt")
        is_stopped = trial % 2 == 0
        if is_stopped:  # the first is held at a random moment while the second does all it can
            time.sleep(draw.uniform(0.02, 0.5 * training.duration))
            os.kill(first.pid, signal.SIGSTOP)
        second = Run.start(words(trial + 1, folder, *WAYS[trial // 2 % 3]), out / f"pair{trial}b.txt")
        code = second.wait()
        if is_stopped:
            os.kill(first.pid, signal.SIGCONT)
        codes = [first.wait(), code]
        outcome.faults += 1
        stopped += is_stopped
        outcome.obscure += sum(run.is_obscure(end) for run, end in zip((first, second), codes, strict=True))
        outcome.refused += sum(
            "in use by process" in run.said() or "already holds" in run.said() for run in (first, second)
        )
        outcome.mixed += _is_mixed(out, folder, trial, codes)
        outcome.missing += lacks_files(folder)
        outcome.scraps += count_scraps(folder)
    outcome.detail = f"{stopped} with SIGSTOP, {number - stopped} started together"
    return outcome


def _is_refused(run: Run) -> bool:
    return "in use by process" in run.said() or "already holds a run" in run.said()


def _is_mixed(out: Path, folder: Path, trial: int, codes: list[int]) -> bool:
    """Whether the folder holds anything but one whole run of a process that ended well."""
    good = [seed for seed, code in zip((trial, trial + 1), codes, strict=True) if code == 0]
    return not good or all(differs(folder, whole(out, seed)) for seed in good[-1:])


def killed_torchrun(out: Path, number: int, seed: int) -> Outcome:
    """Kill the parent of two ranks, and resume at once with one process while they may still write."""
    draw, outcome = random.Random(seed), Outcome("torchrun killed")
    settings = [*TASK, "--method", "ce", "--quiet", "--epochs", "60"]
    for trial in range(number):
        folder = out / f"ranks{trial}"
        command = ["train", *settings, "--out", str(folder), "--resume"]
        driver = subprocess.Popen(
            [sys.executable, *TORCHRUN, *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (folder / "checkpoint.pt").exists() and driver.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.5))
        driver.kill()
        driver.wait()
        outcome.faults += 1
        code = 1
        for attempt in range(200):
            run = Run.start(command, out / f"ranks{trial}.txt")
            code = run.wait()
            outcome.obscure += run.is_obscure(code)
            if code == 0:
                break
            outcome.refused += attempt == 0 and "in use by process" in run.said()
            time.sleep(0.3)
        outcome.different += code != 0 or not _is_whole(folder, epochs=60)
        outcome.missing += lacks_files(folder)
        outcome.scraps += count_scraps(folder)
    outcome.detail = "resumed at once by one process"
    return outcome


def _is_whole(folder: Path, epochs: int) -> bool:
    """Two ranks round otherwise than one process: here it is asked whether every epoch is there once."""
    history = json.loads((folder / "result.json").read_text())["history"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return lines == history and [record["epoch"] for record in history] == list(range(epochs))
