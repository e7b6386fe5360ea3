"""Checkpoints that are whole or not there, and are read without running code."""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch

FORMAT = "icda-checkpoint"
VERSION = 1


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read, or used here."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the new one, and a full disk leaves the old one as it was."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **state}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getbuffer())


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError as error:
        kept = " The last good one is untouched." if path.exists() else ""
        raise CheckpointError(f"could not write {path}: {error.strerror or error}.{kept}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint with `weights_only`, so that a file from a stranger cannot run code."""
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is not a checkpoint of icda: it holds more than tensors and plain data."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or truncated and cannot be read ({error}).") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by icda: it lacks the mark {FORMAT!r}.")
    if state["version"] > VERSION:
        raise CheckpointError(
            f"{path} has format version {state['version']}; this icda reads up to {VERSION}: upgrade."
        )
    return state


def load_state(module: torch.nn.Module, state: dict[str, Any], what: str, path: Path) -> None:
    """`load_state_dict` with an error that says which file and part do not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: its {what} does not fit this run: {error}") from error
