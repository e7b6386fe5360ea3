"""What every test has, in icda and in icda-bench: one seed, and the command line as a user meets it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from icda.bf16 import avoid_amx
from icda.cli.main import main

# Each xdist worker has one core; spinning OpenMP threads would starve its neighbour.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
avoid_amx()  # many tests compute in bf16, in this process and in children

import torch  # noqa: E402  (reads the environment when it is loaded)

_modules_kept = 0


@pytest.fixture(autouse=True)
def _libraries_are_no_garbage() -> None:
    """Every training asks for a garbage collection, which took half a second with all tests and libraries in memory.

    What is there after new modules were imported is frozen: no collection looks through it again.
    """
    global _modules_kept
    if len(sys.modules) != _modules_kept:
        gc.collect()
        gc.freeze()
        _modules_kept = len(sys.modules)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that was printed, frames and line breaks taken away."""
        return " ".join((self.out + self.err).replace("│", " ").split())

    def worked(self) -> Answer:
        assert self.code == 0, self.err
        return self

    def refused(self) -> Answer:
        """Refused in words, not by a traceback."""
        assert self.code == 1, self.text
        assert "Traceback" not in self.err
        assert "mistake in icda" not in self.err
        return self


@pytest.fixture
def icda(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Answer]:
    """`icda("train", "--epochs", 1)`: run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: object) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as leaving:  # how tyro ends after --help or a mistake
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        return Answer(code, *capsys.readouterr())

    return run
