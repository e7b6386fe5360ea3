"""What must be in the environment before torch is loaded; nothing here imports it."""

import itertools
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from icda.bf16 import ISA, WITHOUT_AMX, avoid_amx

# `--precision bf16`, or precision=no,bf16 among what `icda tune --space` searches.
_BF16 = re.compile(r"(--)?precision=(.+,)?bf16(,.+)?")


def prepare_arithmetic(words: Sequence[str]) -> None:
    """Let a command that uses bf16 live on a CPU whose AMX instructions are forbidden; costs nothing for the others."""
    if "torch" in sys.modules or not asks_for_bf16(words):  # torch loaded: `require_bf16` speaks before the first step
        return
    if avoid_amx() and os.environ.get("RANK", "0") == "0":
        print(f"icda: AMX instructions are not allowed here, bf16 goes without ({ISA}={WITHOUT_AMX}).", file=sys.stderr)


def asks_for_bf16(words: Sequence[str]) -> bool:
    """Whether a command's words, or the file after its --config, ask for bf16.

    >>> asks_for_bf16(["train", "--precision", "bf16"]), asks_for_bf16(["tune", "--space", "precision=no,bf16"])
    (True, True)
    >>> asks_for_bf16(["train", "--out", "bf16"])
    False
    """
    options = [*words, *("=".join(pair) for pair in itertools.pairwise(words))]
    if any(word.startswith("--precision=") for word in options):  # wins over the file
        return any(_BF16.fullmatch(word) for word in options)
    return any(_BF16.fullmatch(word) for word in words) or _file_asks(config_path(words))


def config_path(words: Sequence[str]) -> Path | None:
    """The file after --config.

    >>> config_path(["train", "--config", "a.yaml"]), config_path(["train", "--config=b.yaml"]), config_path(["train"])
    (PosixPath('a.yaml'), PosixPath('b.yaml'), None)
    """
    for position, word in enumerate(words):
        if word == "--config" and position + 1 < len(words):
            return Path(words[position + 1])
        if word.startswith("--config="):
            return Path(word.partition("=")[2])
    return None


def is_given(option: str, words: Sequence[str]) -> bool:
    """Whether a command's words name an option.

    >>> is_given("--selection", ["--selection=last"]), is_given("--selection", ["--out", "selection"])
    (True, False)
    """
    return any(word.partition("=")[0] == option for word in words)


def _file_asks(path: Path | None) -> bool:
    """Whether a file of settings has bf16. One that cannot be read is not complained about here: `icda train` does that."""
    if path is None:
        return False
    from icda.settings import read_yaml

    try:
        settings = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("precision") == "bf16"
