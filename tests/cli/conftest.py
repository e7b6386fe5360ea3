"""The command line as a user meets it: words in; exit code, output and complaints out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from icda.cli.main import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that was printed, frames and line breaks taken away."""
        return " ".join((self.out + self.err).replace("│", " ").split())


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
