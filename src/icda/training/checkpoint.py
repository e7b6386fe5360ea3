"""Checkpoints that are whole or not there, and are read without running code."""

import io
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device

from icda.errors import IcdaError, InputError, OperationError
from icda.limits import check_unpacked
from icda.results.files import UnwritableError, write_atomically
from icda.settings import check

FORMAT = "icda-checkpoint"
VERSION = 1


# What the parts of our files are; what is inside them, `understood` sees.
LISTS = ("networks", "class_names", "optimizers", "history")
DICTS = ("method", "config", "setup", "selector", "position", "random")
KINDS = {**dict.fromkeys(LISTS, list), **dict.fromkeys(DICTS, dict), "epoch": int}


class CheckpointError(OperationError):
    """A checkpoint that cannot be written, read, or used here."""


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the new one, and a full disk leaves the old one as it was."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **state}, buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_atomically(path, buffer.getbuffer())
    except UnwritableError as error:
        raise CheckpointError(str(error)) from error


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
    try:
        check({name: value for name, value in state.items() if name in KINDS}, KINDS)
    except InputError as error:
        raise CheckpointError(f"{path} was not written by icda: {error}") from error
    return state


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Inside, the content of a file is taken apart: what does not fit there is the file's fault."""
    try:
        yield
    except IcdaError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{path} holds something that icda does not write there ({what}).") from error


def _check_archive(path: Path) -> None:
    """Compare the checksums of the archive: torch reads past a flipped bit, and it would end up in the weights."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(entry.file_size for entry in archive.infolist()))
            damaged = archive.testzip()
    except InputError as error:
        raise CheckpointError(str(error)) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # what zipfile raises on a broken file depends on where it is broken
        raise CheckpointError(f"{path} is not a checkpoint, or one that is damaged or truncated ({error}).") from error
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged: the checksum of its part {damaged!r} is wrong.")


def load_state(module: torch.nn.Module, state: Mapping[str, Any], what: str, path: Path) -> None:
    """`load_state_dict` with an error that says which file and part do not fit."""
    with understood(path):
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise CheckpointError(f"{path}: its {what} does not fit this run: {error}") from error


def load_networks(modules: Sequence[torch.nn.Module], states: Sequence[Mapping[str, Any]], path: Path) -> None:
    """`load_state` for each network of a file."""
    if len(modules) != len(states):
        raise CheckpointError(f"{path} has {len(states)} networks; this run trains {len(modules)}.")
    for module, state in zip(modules, states, strict=True):
        load_state(module, state, "network", path)


def cpu_state(module: torch.nn.Module) -> dict[str, Any]:
    """A state_dict on the CPU; `get_extra_state` may have put plain data beside the tensors."""
    return dict(send_to_device(module.state_dict(), "cpu"))
