"""Whether arithmetic in bfloat16 kills the process on this CPU: a child process tries it before ours depends on it.

A CPU may announce AMX instructions that the sandbox around it forbids. The first bf16 layer then ends Python with an
illegal instruction, without a word. oneDNN leaves AMX alone if ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is in the environment
when torch is loaded, so nothing here imports torch. See docs/precision.md.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from icda.errors import InputError, OperationError

ISA = "ONEDNN_MAX_CPU_ISA"
OLD_ISA = "DNNL_MAX_CPU_ISA"  # oneDNN still reads it where the new name is not set
WITHOUT_AMX = "AVX512_CORE_BF16"
FORCED = "ICDA_BF16_PROBE"

PROBE = """
import torch

torch.set_num_threads(1)
linear, convolution = torch.nn.Linear(64, 10), torch.nn.Conv2d(3, 16, 3)
with torch.autocast("cpu", torch.bfloat16):
    outputs = linear(torch.randn(128, 64, requires_grad=True)), convolution(torch.randn(8, 3, 16, 16, requires_grad=True))
for output in outputs:
    output.float().square().mean().backward()
"""
COMMAND = (sys.executable, "-P", "-c", PROBE)
SECONDS = 120
# What a process dies of by its own arithmetic. SIGKILL is not among them: that is a lack of memory, or somebody's will.
DEADLY = ("SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGABRT", "SIGSYS", "SIGTRAP")


class Bf16Error(OperationError):
    """bf16 would kill this process; the message says what to do."""


def dies(isa: str | None = None) -> bool:
    """Whether a process dies of bf16 on this CPU, with `isa` as ONEDNN_MAX_CPU_ISA, or with the environment as it is.

    The answer of the child process is kept for the machine. ICDA_BF16_PROBE=survives asks no child; with
    ICDA_BF16_PROBE=dies every machine is taken for one on which AMX kills.
    """
    isa = isa or os.environ.get(ISA) or os.environ.get(OLD_ISA) or ""
    forced = os.environ.get(FORCED)
    if forced is None:
        return _dies(isa, COMMAND, cache_folder())
    if forced not in ("dies", "survives"):
        raise InputError(f"{FORCED} must be 'dies' or 'survives', got {forced!r}: unset it to probe this machine.")
    return forced == "dies" and not isa


def avoid_amx() -> bool:
    """Make bf16 safe for a process that has not loaded torch, and for its children; whether AMX had to be given up."""
    if not dies():
        return False
    if dies(WITHOUT_AMX):
        raise Bf16Error(_hopeless())
    os.environ[ISA] = WITHOUT_AMX
    return True


def require_bf16() -> None:
    """Refuse, in a process that has loaded torch already, the bf16 arithmetic it would die of."""
    if not dies():
        return
    if dies(WITHOUT_AMX):
        raise Bf16Error(_hopeless())
    raise Bf16Error(
        f"bf16 would kill this process, because AMX instructions are not allowed here: set {ISA}={WITHOUT_AMX} in the "
        "environment before Python loads torch, or train with precision 'no'."
    )


def cache_folder() -> Path:
    """Where the answer is kept: $XDG_CACHE_HOME/icda, or .cache/icda in the user's home."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    if cache_home:
        return Path(cache_home) / "icda"
    try:
        return Path.home() / ".cache" / "icda"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "icda"


def _hopeless() -> str:
    return f"bf16 kills a process on this CPU, with {ISA}={WITHOUT_AMX} too: train with precision 'no'."


@functools.cache  # a machine whose cache folder cannot be written is still asked only once per process
def _dies(isa: str, command: tuple[str, ...], folder: Path) -> bool:
    facts = _facts(isa, command)
    path = folder / f"bf16-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return bool(json.loads(path.read_text())["dies"])
    answer = _try(isa, command)
    if answer is not None:
        with contextlib.suppress(OSError):
            _write(path, json.dumps({"dies": answer, **facts}, indent=1))
    return bool(answer)


def _facts(isa: str, command: tuple[str, ...]) -> dict[str, str]:
    """All that the answer depends on. The kernel is part of it: what a sandbox allows changes with it, not with the CPU."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "none"
    return {
        "cpu": _processor(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "torch": torch,
        "isa": isa,
        "probe": hashlib.sha256("\n".join(command).encode()).hexdigest()[:8],
    }


def _processor() -> str:
    """Model and flags of the first core."""
    names = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        return platform.processor()
    return "; ".join(line.partition(":")[2].strip() for line in first.splitlines() if line.startswith(names))


def _try(isa: str, command: tuple[str, ...]) -> bool | None:
    """Whether the child died; None where it ended in a way that says nothing about the CPU."""
    environment = {**os.environ, ISA: isa} if isa else dict(os.environ)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return False
    number = -done.returncode if done.returncode < 0 else done.returncode - 128  # the second is how a shell reports it
    names = {kind.value: kind.name for kind in signal.Signals}
    return True if names.get(number) in DEADLY else None


def _write(path: Path, text: str) -> None:
    """All of the file or nothing: ranks of one run may ask at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
