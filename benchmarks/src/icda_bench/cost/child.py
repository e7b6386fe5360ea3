"""A function in a Python process of its own: what it takes of memory and threads is then its own."""

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# What the function prints goes to stderr: stdout carries its answer.
_CHILD = """
import os, pickle, sys
answer = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
function, arguments = pickle.load(sys.stdin.buffer)
pickle.dump(function(*arguments), answer)
"""


def in_child(function: Callable[..., T], *arguments: object, **environment: str) -> T:
    """What a module's function answers in a new process, whose environment differs from ours by `environment`."""
    asked = pickle.dumps((function, arguments))
    command = [sys.executable, "-c", _CHILD]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment})
    answer: T = pickle.loads(done.stdout)
    return answer


def peak_mib() -> float:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # where there is one: a child's ru_maxrss begins with what its parent had
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
