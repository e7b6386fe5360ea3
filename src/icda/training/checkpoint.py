"""Checkpoints that are whole or not there, and are read without running code."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from icda.errors import OperationError

FORMAT = "icda-checkpoint"
VERSION = 1


class CheckpointError(OperationError):
    """A checkpoint that cannot be written, read, or used here."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the new one, and a full disk leaves the old one as it was."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **state}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getbuffer())


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Replace a file as a whole. What a killed process left half written is overwritten by the next one, not piled up."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        kept = " The last good one is untouched." if path.exists() else ""
        raise CheckpointError(f"could not write {path}: {error.strerror or error}.{kept}") from error
    finally:
        part.unlink(missing_ok=True)


def load_checkpoint(path: Path, parts: Iterable[str] = ()) -> dict[str, Any]:
    """Read a checkpoint with `weights_only`, so that a file from a stranger cannot run code; `parts` must be in it."""
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}.")
    _check_archive(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is not a checkpoint of icda: it holds more than tensors and plain data."
        ) from error
    except Exception as error:  # what torch raises on a broken file depends on where it is broken
        raise CheckpointError(f"{path} is damaged and cannot be read ({error}).") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT or not isinstance(state.get("version"), int):
        raise CheckpointError(f"{path} was not written by icda: it lacks the mark {FORMAT!r}.")
    if state["version"] > VERSION:
        raise CheckpointError(
            f"{path} has format version {state['version']}; this icda reads up to {VERSION}: upgrade."
        )
    missing = sorted(set(parts) - state.keys())
    if missing:
        raise CheckpointError(f"{path} lacks {', '.join(missing)}: another kind of file bears its name.")
    return state


def _check_archive(path: Path) -> None:
    """Compare the checksums of the archive: torch reads past a flipped bit, and it would end up in the weights."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # what zipfile raises on a broken file depends on where it is broken
        raise CheckpointError(f"{path} is not a checkpoint, or one that is damaged or truncated ({error}).") from error
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged: the checksum of its part {damaged!r} is wrong.")


def load_state(module: torch.nn.Module, state: dict[str, Any], what: str, path: Path) -> None:
    """`load_state_dict` with an error that says which file and part do not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: its {what} does not fit this run: {error}") from error
