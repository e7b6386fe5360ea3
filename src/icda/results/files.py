"""Names of the files in a run's folder, and files that are whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from icda.errors import InputError, OperationError

RESULT = "result.json"  # figures, settings and surroundings of a finished run
EXPLANATIONS = "explanations.json"  # margins, strengths, tied samples, pictures
MODEL = "model.pt"  # the selected model
CHECKPOINT = "checkpoint.pt"  # all that is needed to go on
CONFIG = "config.yaml"  # the settings, as `icda train --config` reads them
LOG = "log.jsonl"  # one line for each epoch
TENSORBOARD = "tensorboard"  # folder of TensorBoard's event files
REPORT = "report.html"  # the page to open in a browser
FAILURE = "failure.txt"  # the traceback of a cell of a table that failed


class UnwritableError(OperationError):
    """A file could not be written."""


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
        raise UnwritableError(f"could not write {path}: {error.strerror or error}.{kept}") from error
    finally:
        part.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that a run wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON ({error}): was the run cut off while writing?") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} holds a {type(values).__name__}, not what a run writes.")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values atomically and compactly; NaN and infinity, which JSON does not have, are refused."""
    write_atomically(path, json.dumps(values, allow_nan=False).encode())
