"""Whether arithmetic in bfloat16 kills the process on this machine.

A CPU may announce AMX instructions that the sandbox around it forbids: the first bf16 layer then ends Python with an
illegal instruction. Where the kernel refuses AMX, a child process tries it first. oneDNN leaves AMX alone if ISA is
AVX512_CORE_BF16 when torch is loaded, so nothing here imports torch. See docs/compile.md.
"""

import ctypes
import functools
import os
import subprocess
import sys
from pathlib import Path

from icda.errors import InputError, OperationError

ISA = "ONEDNN_MAX_CPU_ISA"
OLD_ISA = "DNNL_MAX_CPU_ISA"  # oneDNN still reads it where the new name is not set
WITHOUT_AMX = "AVX512_CORE_BF16"
FORCED = "ICDA_BF16_PROBE"
PROBE = """
import torch
for layer, shape in ((torch.nn.Linear(64, 10), (128, 64)), (torch.nn.Conv2d(3, 16, 3), (8, 3, 16, 16))):
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(torch.randn(shape, requires_grad=True))
    output.float().square().mean().backward()
"""
COMMAND = (sys.executable, "-P", "-c", PROBE)
# SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: a death by one's own arithmetic. SIGKILL is somebody's will.
DEADLY = (4, 5, 6, 7, 8, 11, 31)


class Bf16Error(OperationError):
    """bf16 would kill this process; the message says what to do."""


def dies() -> bool:
    """Whether a process with this environment dies of bf16 here; ICDA_BF16_PROBE=dies or =survives answers instead."""
    isa, forced = os.environ.get(ISA) or os.environ.get(OLD_ISA) or "", os.environ.get(FORCED)
    if forced not in (None, "dies", "survives"):
        raise InputError(f"{FORCED} must be 'dies' or 'survives', got {forced!r}: unset it to probe this machine.")
    if isa and "AMX" not in isa and isa not in ("ALL", "DEFAULT"):
        return False
    return amx_is_refused() and _child_dies(COMMAND) if forced is None else forced == "dies"


def avoid_amx() -> bool:
    """Make bf16 safe for a process that has not loaded torch, and for its children; whether AMX had to be given up."""
    if given_up := dies():
        os.environ[ISA] = WITHOUT_AMX
    return given_up


def require_bf16() -> None:
    """Refuse, in a process that has loaded torch already, the bf16 arithmetic it would die of."""
    if dies():
        raise Bf16Error(
            f"bf16 would kill this process, because AMX instructions are not allowed here: set {ISA}={WITHOUT_AMX} in the "
            "environment before Python loads torch, or train with precision 'no'."
        )


def amx_is_refused() -> bool:
    """Whether the CPU announces AMX and the kernel does not let a process use it."""
    try:
        announced = " amx_tile" in Path("/proc/cpuinfo").read_text()
        return announced and ctypes.CDLL(None).syscall(158, 0x1023, 18) != 0  # ARCH_REQ_XCOMP_PERM of tiles
    except OSError:  # no Linux
        return False


@functools.cache
def _child_dies(command: tuple[str, ...]) -> bool:
    try:
        code = subprocess.run(command, capture_output=True, timeout=120).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
    return (-code if code < 0 else code - 128) in DEADLY  # the second is how a shell reports it
