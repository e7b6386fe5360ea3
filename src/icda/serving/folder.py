"""The model folder: facts as JSON, weights as safetensors. Nothing in it can run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from icda.errors import InputError, MissingFileError
from icda.results.files import write_atomically

FACTS = "model.json"
WEIGHTS = "weights.safetensors"
PAGE = "page.html"  # what was found, done and brought, for a reader
QUESTIONS = "questions.html"  # the page on which a person answers
ANSWERS = "answers.csv"  # what a person answered
FORMAT = "icda-model"
VERSION = 1
LARGEST_FACTS = 2**26  # bytes; a model of 100,000 classes has less
LARGEST_WEIGHTS = 2**33


def write_model(folder: Path, facts: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Write both files; the same model gives the same bytes. The facts come last: without them there is no model."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    write_atomically(folder / WEIGHTS, safetensors.save(plain))
    marked = {"format": FORMAT, "version": VERSION, **facts}
    write_atomically(folder / FACTS, (json.dumps(marked, indent=1, allow_nan=False) + "\n").encode())


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and weights of a folder that may be a stranger's: what does not look as it should is refused."""
    facts = _facts(folder / FACTS)
    path = folder / WEIGHTS
    content = _read(path, LARGEST_WEIGHTS)
    try:
        return facts, safetensors.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no safetensors file, or it is damaged ({error}).") from error


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(_read(path, LARGEST_FACTS))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): was it cut off while writing?") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path} was not written by icda: it lacks the mark {FORMAT!r}.")
    version = facts.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise InputError(f"{path} has format version {version!r}; this icda reads up to {VERSION}: upgrade.")
    return facts


def _read(path: Path, most: int) -> bytes:
    if not path.is_file():
        raise MissingFileError(f"{path} is not there: the model folder is not whole.")
    if path.stat().st_size > most:
        raise InputError(f"{path} has {path.stat().st_size} bytes, more than a model has ({most}).")
    return path.read_bytes()
