"""Trainings that are killed for real: `python -P tests/training/killed.py WHOLE KILLED SEED OPTIONS...`.

Runs `icda train OPTIONS...` undisturbed into WHOLE. Then runs it with --resume into KILLED again and again, each time
ended by SIGKILL, first before it has done anything, then by turns as soon as it writes a file and at a random moment; the
last run is left alone. Every run is a fork of this process, because importing torch takes longer than the training.
Prints how many runs were killed, and how many of them left a half-written file behind.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from icda.cli.main import main

ROUNDS = 8


def start(options):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process lives
            code = main(["train", *options])
        finally:
            os._exit(code)
    return child


def is_over(child):
    """Whether a run has come to its end; one that failed ends this script."""
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid and status:
        sys.exit(f"a run ended with status {status}")
    return bool(pid)


def kill_when(moment, options):
    """Start a run and kill it when the moment has come; False if it came to its end before."""
    child = start(options)
    while not moment():
        if is_over(child):
            return False
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def torment(whole, killed, seed, options):
    draw = random.Random(seed)
    for _ in range(2):  # the first time much is imported that the forks then need not import again
        started = time.monotonic()
        code = main(["train", *options, "--quiet", "--overwrite", "--out", str(whole)])
        assert code == 0
        duration = time.monotonic() - started
    resumed = [*options, "--resume", "--out", str(killed)]

    def after(seconds):
        end = time.monotonic() + seconds
        return lambda: time.monotonic() >= end

    def writing():
        return killed.is_dir() and any(name.endswith(".part") for name in os.listdir(killed))  # noqa: PTH208 - faster

    kills = halves = 0
    moments = [lambda: after(0.0)]
    for _ in range(ROUNDS):
        moments += [lambda: writing, lambda: after(draw.uniform(0, 0.5 * duration))]
    for moment in moments:
        if not kill_when(moment(), resumed):
            break
        kills += 1
        if writing():
            halves += 1
            for part in killed.glob(".*.part"):  # or the next run would be killed for what this one left
                part.rename(part.with_suffix(".kept"))
    last = start(resumed)
    while not is_over(last):
        time.sleep(0.001)
    print(f"killed {kills}, of them while writing {halves}")


if __name__ == "__main__":
    torment(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
