"""Files of a run that were cut off, emptied, overwritten, removed, or have one bit flipped."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from outcome import Outcome

from training import Run, count_scraps, differs, lacks_files, whole, words

Spoil = Callable[[bytes, random.Random], bytes | None]
KINDS: dict[str, Spoil] = {
    "cut off": lambda content, draw: content[: draw.randrange(len(content))],
    "emptied": lambda content, draw: b"",
    "overwritten": lambda content, draw: draw.randbytes(min(len(content), 5000)),
    "removed": lambda content, draw: None,
    "one bit flipped": lambda content, draw: _flip(content, draw.randrange(8 * len(content))),
}
# Of these a run makes what is missing; result.json and text files have no checksum, so a flipped bit there is not sought.
CHECKED = ("checkpoint.pt", "model.pt")
FILES = (*CHECKED, "result.json", "config.yaml", "log.jsonl", "explanations.json", "report.html")


def damaged_files(out: Path, number: int, seed: int) -> Outcome:
    """`number` times each kind on each file: of a finished run, and of one that lacks its result."""
    draw, outcome = random.Random(seed), Outcome("damaged files")
    for trial in range(number):
        for name in FILES:
            for kind, spoil in KINDS.items():
                if kind == "one bit flipped" and name not in CHECKED:
                    continue
                _one(out, outcome, trial, name, spoil, draw)
    outcome.detail = f"{', '.join(KINDS)}; {len(FILES)} files"
    return outcome


def _one(out: Path, outcome: Outcome, trial: int, name: str, spoil: Spoil, draw: random.Random) -> None:
    folder = out / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole(out, trial), folder)
    if trial % 2 and name != "result.json":
        (folder / "result.json").unlink()
    content = spoil((folder / name).read_bytes(), draw)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    run = Run.start(words(trial, folder, "--resume"), folder.with_suffix(".txt"))
    code = run.wait()
    outcome.faults += 1
    outcome.obscure += run.is_obscure(code)
    outcome.refused += code == 1 and not run.is_obscure(code)
    if code == 0:
        outcome.missing += lacks_files(folder) and name != "explanations.json"
        outcome.different += _spoiled(folder, whole(out, trial), name)
    outcome.scraps += count_scraps(folder)


def _spoiled(folder: Path, other: Path, name: str) -> bool:
    """Whether the run differs in more than the file that a finished run does not read again."""
    results = [
        (place / "result.json").read_text().split('"environment"')[0].split('"config"')[0] for place in (folder, other)
    ]
    if results[0] != results[1]:
        return True
    untouched = [file for file in ("checkpoint.pt", "model.pt", "log.jsonl") if file != name]
    return any(_bytes_differ(folder / file, other / file) for file in untouched) and differs(folder, other)


def _bytes_differ(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def _flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
