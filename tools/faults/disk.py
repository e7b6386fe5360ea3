"""A disk that fills up: a small file system in memory where it may be mounted, else a limit on the size of files."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
from collections import Counter
from pathlib import Path

from outcome import Outcome

from training import Run, count_scraps, differs, finish, lacks_files, whole, words


def full_disk(out: Path, number: int, seed: int) -> Outcome:
    draw, outcome, kinds = random.Random(seed), Outcome("disk full"), Counter[str]()
    needed = _kilobytes(whole(out, 0))
    for trial in range(number):
        place = out / f"disk{trial}"
        place.mkdir()
        size = draw.randint(8, needed)
        mounted = trial % 2 == 0 and mount(place, size)
        folder = place / "run"
        try:
            run = Run.start(
                words(trial, folder), out / f"disk{trial}.txt", None if mounted else lambda size=size: _limit(size)
            )
            code = run.wait()
            outcome.faults += code != 0
            kinds["small file system" if mounted else "limit on files"] += code != 0
            outcome.refused += code == 1 and not run.is_obscure(code)
            outcome.obscure += run.is_obscure(code)
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
            code, run = finish(folder, trial)
            outcome.obscure += run.is_obscure(code)
            outcome.different += code != 0 or differs(folder, whole(out, trial))
            outcome.missing += lacks_files(folder)
            outcome.scraps += count_scraps(folder)
        finally:
            if mounted:
                subprocess.run(["umount", str(place)], check=True)
    outcome.detail = ", ".join(f"{count} by a {kind}" for kind, count in kinds.items())
    return outcome


def _kilobytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) // 1024


def mount(place: Path, kilobytes: int) -> bool:
    """Mount a small file system; False where that is not allowed."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _limit(kilobytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error at the write, as from a disk, instead of death
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024 // 4, resource.RLIM_INFINITY))
