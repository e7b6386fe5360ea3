"""The model folder: facts as JSON, weights as safetensors. Nothing in it can run code."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from icda.errors import InputError, MissingFileError
from icda.limits import LARGEST_FACTS, LARGEST_WEIGHTS, read_small
from icda.results.claims import place_of
from icda.results.files import write_atomically

FACTS = "model.json"
WEIGHTS = "weights.safetensors"
PAGE = "page.html"  # what was found, done and brought, for a reader
QUESTIONS = "questions.html"  # the page on which a person answers
ANSWERS = "answers.csv"  # what a person answered
SOURCE = "source.json"  # which data it was fitted to
# What a fit replaces together; the answers, which are a person's work, go only where new ones come.
WRITTEN = (WEIGHTS, FACTS, PAGE, QUESTIONS, SOURCE, "audit.csv", "audit.json")
FORMAT = "icda-model"
VERSION = 1
DIGEST = "weights_sha256"


def write_model(folder: Path, facts: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Write both files; the same model gives the same bytes. The facts hold the digest of the weights they belong to."""
    content = safetensors.save({name: np.ascontiguousarray(value) for name, value in weights.items()})
    write_atomically(folder / WEIGHTS, content, new_folder=True)
    marked = {"format": FORMAT, "version": VERSION, **facts, DIGEST: hashlib.sha256(content).hexdigest()}
    write_atomically(folder / FACTS, (json.dumps(marked, indent=1, allow_nan=False) + "\n").encode())


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and weights of a folder that may be a stranger's: what does not look as it should is refused."""
    written, content = _read_together(folder)
    facts, path = _facts(written, folder / FACTS), folder / WEIGHTS
    try:
        weights = safetensors.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no safetensors file, or it is damaged ({error}).") from error
    if facts.get(DIGEST) not in (None, hashlib.sha256(content).hexdigest()):  # an earlier icda wrote no digest
        raise InputError(
            f"{path} is damaged, or of another model: its SHA-256 is not the one in {FACTS}. Copy both again, or fit again."
        )
    return facts, weights


def _read_together(folder: Path) -> tuple[bytes, bytes]:
    """Both files of one model, though another process may be putting a new one in its place."""
    for last in (False, False, True):
        try:
            facts, weights = _read(folder, FACTS, LARGEST_FACTS), _read(folder, WEIGHTS, LARGEST_WEIGHTS)
            if last or _read(folder, FACTS, LARGEST_FACTS) == facts:
                break
        except FileNotFoundError:  # moved to its place just now
            if last:
                raise
    return facts, weights


def _read(folder: Path, name: str, most: int) -> bytes:
    path = place_of(folder, name)
    if not path.is_file():
        raise MissingFileError(f"{path} is not there: the model folder is not whole.")
    return read_small(path, most)


def _facts(content: bytes, path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): was it cut off while writing?") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path} was not written by icda: it lacks the mark {FORMAT!r}.")
    version = facts.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise InputError(f"{path} has format version {version!r}; this icda reads up to {VERSION}: upgrade.")
    return facts
