"""fit, predict, embed, audit and export: killed at each of their operations on files, on a full disk, two at a time."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from disk import mount
from outcome import Outcome
from PIL import Image

from icda.models.encoders import ENCODERS, ImageEncoder
from icda.serving import load
from training import Run

ROWS = 120
OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "tempfile.mkdtemp")
LEFT_BY_EMBEDDING = ("features.npz", "features.npz.part")


@dataclass(frozen=True)
class Command:
    """One command that writes `out` below a folder, from the input of that number: 0 the old one, 1 the new one."""

    name: str
    out: str  # a file or a folder
    words: Callable[[Path, int], list[str]]
    again: tuple[str, ...] = ()  # what goes on, or writes over the earlier output

    def line(self, folder: Path, number: int, *how: str) -> list[str]:
        return [self.name.split()[0], *self.words(folder, number), *how]


def _file(folder: Path, name: str, number: int) -> str:
    return str(folder.parent / f"{name}{number}")


COMMANDS = (
    Command("fit", "model", lambda f, k: [_file(f, "f", k) + ".npz", "--out", f"{f}/model"], ("--overwrite",)),
    Command(
        "fit over blocks",
        "model",
        lambda f, k: [_file(f, "f", k) + ".parquet", "--features", "f", "--on", "blocks", "--out", f"{f}/model"],
        ("--overwrite",),
    ),
    Command(
        "fit to images",
        "model",
        lambda f, k: [_file(f, "photos", k), "--encoder", "tiny", "--out", f"{f}/model"],
        ("--overwrite",),
    ),
    Command("predict", "p.csv", lambda f, k: [_file(f, "model", k), _file(f, "f", k) + ".npz", "--out", f"{f}/p.csv"]),
    Command(
        "embed",
        "e.npz",
        lambda f, k: [_file(f, "photos", k), "--encoder", "tiny", "--batch-size", "2", "--out", f"{f}/e.npz"],
        ("--resume",),
    ),
    Command("audit", "audit", lambda f, k: [_file(f, "f", k) + ".npz", "--top", "0", "--out", f"{f}/audit"]),
    Command(
        "export",
        "w.safetensors",
        lambda f, k: [_file(f, "model", k), "--safetensors", f"{f}/w.safetensors"],
    ),
)


class Colours(torch.nn.Module):
    """Mean and deviation of the colours: an encoder that costs nothing."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([images.mean((2, 3)), images.std((2, 3))], 1)


def make_inputs(place: Path) -> None:
    """Old and new data, and models of both; outputs of undisturbed commands to compare with."""
    if "tiny" not in ENCODERS:
        ENCODERS.register("tiny")(
            lambda kind, size: ImageEncoder("tiny", "1, weights 1", Colours(), size or 8, (0.5,) * 3, (0.5,) * 3)
        )
    import pyarrow
    import pyarrow.parquet

    place.mkdir()
    for number in (0, 1):
        draw, y = np.random.default_rng(number), np.arange(ROWS) % 2
        X = draw.normal(size=(ROWS, 3)) + (2 - 4 * number) * y[:, None]  # the new classes lie the other way round
        np.savez(place / f"f{number}.npz", X=X, y=np.array(["a", "b"])[y])
        columns = {f"f{k}": X[:, k] for k in range(3)}
        pyarrow.parquet.write_table(pyarrow.table({**columns, "label": y}), place / f"f{number}.parquet")
        for row in range(60):
            folder = place / f"photos{number}" / "ab"[row % 2]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 90, (8, 8, 3), dtype=np.uint8)
            pixels[:, :, 2 * ((row + number) % 2)] += 150
            Image.fromarray(pixels).save(folder / f"{row}.png")
        assert Run.start(COMMANDS[0].line(place / "x", number), place / "said.txt").wait() == 0
        shutil.move(place / "x/model", place / f"model{number}")
    for command in COMMANDS:
        for number in (0, 1):
            folder = _whole(place, command, number)
            folder.mkdir()
            run = Run.start(command.line(folder, number), place / "said.txt")
            assert run.wait() == 0, run.said()


def _whole(place: Path, command: Command, number: int) -> Path:
    return place / f"{command.name} {number}".replace(" ", "_")


def killed_outputs(out: Path, number: int, seed: int) -> Outcome:
    """Kill each command before each of its operations on files, with and without an earlier output; at most `number`."""
    outcome, kinds, place = Outcome("outputs killed"), Counter[str](), out / "outputs"
    make_inputs(place)
    trials = [
        (command, has_old, last)
        for command in COMMANDS[:number]
        for has_old in (True, False)
        if not (has_old and command.name == "embed")  # it does not write over a file
        for last in range(1, _count_operations(place, command, has_old) + 1)
    ]
    random.Random(seed).shuffle(trials)
    for command, has_old, last in trials[:number]:
        folder = _prepared(place, command, has_old)
        how = command.again if has_old or command.name == "embed" else ()
        run = Run.start(command.line(folder, 1, *how), place / "said.txt", partial(_stop, folder, last, signal.SIGKILL))
        if run.wait() != -signal.SIGKILL:
            continue
        kinds[command.name] += 1
        outcome.faults += 1
        outcome.mixed += not _is_old_or_new(place, command, folder, has_old)
        _go_on(place, command, folder, how, outcome)
    outcome.detail = ", ".join(f"{count} {name}" for name, count in kinds.items())
    return outcome


def outputs_on_a_full_disk(out: Path, number: int, seed: int) -> Outcome:
    """A small file system, or a limit on the size of files, in which an earlier output lies."""
    outcome, kinds, place, draw = Outcome("outputs, disk full"), Counter[str](), out / "outputs", random.Random(seed)
    if not place.exists():
        make_inputs(place)
    commands = [command for command in COMMANDS if command.name != "embed"]
    for trial in range(number):
        command = commands[trial % len(commands)]
        folder = _prepared(place, command, has_old=False)
        room = _kilobytes(_whole(place, command, 0)) + draw.randint(4, 24)
        is_mounted = trial // len(commands) % 2 == 0 and mount(folder, room)
        try:
            _copy_old(place, command, folder)
            limit = None if is_mounted else partial(_limit, draw.randint(4000, 5000))  # what is printed has room
            run = Run.start(command.line(folder, 1, *command.again), place / "said.txt", limit)
            code = run.wait()
            if code == 0:  # there was room
                continue
            kinds["small file system" if is_mounted else "limit on files"] += 1
            outcome.faults += 1
            outcome.refused += code == 1 and not run.is_obscure(code)
            is_obscure = run.is_obscure(code) or "No space left" not in run.said().replace(
                "File too large", "No space left"
            )
            outcome.obscure += is_obscure
            if is_obscure:
                print(f"{command.name}: {run.said()[-2000:]}", flush=True)
            outcome.mixed += not _is_whole(place, command, folder, 0)
            if is_mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
            _go_on(place, command, folder, command.again, outcome)
        finally:
            if is_mounted:
                subprocess.run(["umount", str(folder)], check=True)
    outcome.detail = ", ".join(f"{count} by a {kind}" for kind, count in kinds.items())
    return outcome


def two_outputs(out: Path, number: int, seed: int) -> Outcome:
    """Two processes with one output and different data: one held at an operation while the other runs, or both at once."""
    outcome, kinds, place, draw = Outcome("outputs, two writers"), Counter[str](), out / "outputs", random.Random(seed)
    if not place.exists():
        make_inputs(place)
    for trial in range(number):
        command = COMMANDS[trial % len(COMMANDS)]
        folder = _prepared(place, command, has_old=False)
        is_held = trial // len(COMMANDS) % 2 == 0
        last = draw.randint(2, _count_operations(place, command, False))
        hold = partial(_stop, folder, last, signal.SIGSTOP) if is_held else None
        first = Run.start(command.line(folder, 0, *command.again), place / "one.txt", hold)
        ended_early: int | None = None
        if is_held:
            status = os.waitpid(first.pid, os.WUNTRACED)[1]
            ended_early = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        second = Run.start(command.line(folder, 1, *command.again), place / "two.txt")
        codes = [0, second.wait()]
        if is_held and ended_early is None:
            os.kill(first.pid, signal.SIGCONT)
        codes[0] = first.wait() if ended_early is None else ended_early
        kinds["held" if is_held else "started together"] += 1
        outcome.faults += 1
        outcome.refused += sum("in use by" in run.said() for run in (first, second))
        outcome.obscure += sum(run.is_obscure(code) for run, code in zip((first, second), codes, strict=True))
        ended = [k for k, code in enumerate(codes) if code == 0]
        outcome.mixed += not any(_is_whole(place, command, folder, k) for k in ended)
        outcome.scraps += _scraps(folder)
    outcome.detail = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return outcome


def _prepared(place: Path, command: Command, has_old: bool) -> Path:
    folder = place / "disturbed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if has_old:
        _copy_old(place, command, folder)
    return folder


def _copy_old(place: Path, command: Command, folder: Path) -> None:
    source = _whole(place, command, 0) / command.out
    copy: Any = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, folder / command.out)


def _go_on(place: Path, command: Command, folder: Path, how: tuple[str, ...], outcome: Outcome) -> None:
    """The same command again: it ends well, or says that what an interrupted one made is there, and that is whole."""
    run = Run.start(command.line(folder, 1, *how), place / "said.txt")
    code = run.wait()
    outcome.obscure += run.is_obscure(code)
    outcome.different += not (code == 0 or "is not empty" in run.said())
    outcome.missing += not _is_whole(place, command, folder, 1)
    outcome.scraps += _scraps(folder)


def _is_old_or_new(place: Path, command: Command, folder: Path, has_old: bool) -> bool:
    """Whether what a reader finds after a kill is all of the one or all of the other; nothing, where there was nothing."""
    target = folder / command.out
    if command.name.startswith("fit"):
        try:
            model = load(target)
        except FileNotFoundError:
            return not has_old
        known = [load(_whole(place, command, k) / command.out).coef for k in (0, 1)]
        return any(np.array_equal(model.coef, coef) for coef in known) and _files_are_whole(target)
    if not target.exists():
        return not has_old
    if target.is_dir():
        return _files_are_whole(target)
    return any(_content(target) == _content(_whole(place, command, k) / command.out) for k in (0, 1))


def _files_are_whole(folder: Path) -> bool:
    return all(_content(path) is not None for path in folder.iterdir() if path.is_file() and path.name != ".owner")


def _is_whole(place: Path, command: Command, folder: Path, number: int) -> bool:
    """Whether the output is that of an undisturbed command, apart from the time it took."""
    one, other = folder / command.out, _whole(place, command, number) / command.out
    if not one.exists():
        return False
    if one.is_file():
        return _content(one) == _content(other)
    held = [{p.name: _content(p) for p in part.iterdir() if p.name not in LEFT_BY_EMBEDDING} for part in (one, other)]
    return held[0] == held[1]


def _content(path: Path) -> Any:
    """What a file says, without times and places; None for one that is cut off."""
    if path.suffix == ".html":
        return "page" if path.read_text().rstrip().endswith("</html>") else None
    if path.suffix != ".json":
        return path.read_bytes() or None
    try:
        known = json.loads(path.read_text())
    except ValueError:
        return None
    return {key: value for key, value in known.items() if key not in ("seconds", "data", "settings", "summary")}


def _scraps(folder: Path) -> int:
    return sum(path.name.startswith(".") or path.name.endswith(".part") for path in folder.rglob("*"))


def _kilobytes(folder: Path) -> int:
    """In pages of 4 kilobytes, one for each folder."""
    return sum(4 * (path.stat().st_size // 4096 + 1) for path in folder.rglob("*"))


def _limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _count_operations(place: Path, command: Command, has_old: bool) -> int:
    folder, counted = _prepared(place, command, has_old), place / "count"
    how = command.again if has_old or command.name == "embed" else ()

    def prepare() -> None:
        _watch(folder, lambda done: counted.write_text(str(done)))

    assert Run.start(command.line(folder, 1, *how), place / "said.txt", prepare).wait() == 0
    return int(counted.read_text())


def _stop(folder: Path, last: int, how: signal.Signals) -> None:
    def act(done: int) -> None:
        if done == last:
            os.kill(os.getpid(), how)

    _watch(folder, act)


def _watch(folder: Path, act: Callable[[int], object]) -> None:
    """Call `act` with a running number before each operation that changes something below a folder."""
    done, root, busy = 0, os.fsencode(folder), False

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done, busy
        if busy or event not in OPERATIONS or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if os.fsencode(arguments[0]).startswith(root):
            done, busy = done + 1, True
            act(done)
            busy = False

    sys.addaudithook(seen)
    real = os.fsync

    def fsync(handle: int) -> None:
        seen("open", (str(folder), "w", os.O_WRONLY))
        real(handle)

    os.fsync = fsync
