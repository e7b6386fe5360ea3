"""Where a result was made: versions, machine, commit."""

import functools
import hashlib
import os
import platform
import subprocess
from pathlib import Path

import torch

from icda import plugins
from icda._version import __version__
from icda.results.run_result import Fact

SOURCE = "src/icda/training/environment.py"  # where this file lies in icda's own repository


def describe_environment() -> dict[str, Fact]:
    """Plain facts that belong beside a number."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.is_file() else []
    processor = models[0].split(":", 1)[1].strip() if models else platform.processor()
    return {
        "icda": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "commit": _commit(),
        "code": code_hash(),
        **({"plugins": loaded} if (loaded := plugins.versions()) else {}),
    }


@functools.cache
def code_hash(package: Path = Path(__file__).parents[1]) -> str:
    """Twelve digits of a hash over the package's Python files; the same ones give results of the same code."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the source tree icda runs from; None for an installed package.

    A package installed inside another project, in a virtual environment there, lies in that project's repository and is
    no part of it.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", "--full-name", file.name) != SOURCE:
        return None
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *words: str) -> str | None:
    # A hook of another repository would have its own place in the environment.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        git = subprocess.run(
            ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return git.stdout.strip() or None
