"""Finished chunks of a run, kept until the features file is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from icda.data.embedding.features import read_arrays, write_arrays, write_text
from icda.data.embedding.samples import Samples
from icda.errors import ExistingFileError, InputError, UnreadableError

CHUNK_BATCHES = 16  # what a killed run loses at most


class Chunk(NamedTuple):
    """Features of the samples of a chunk that could be read, and which of all its samples those are."""

    features: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True)
class EmbeddingPlan:
    """All that decides the bytes of the features, apart from the inputs."""

    encoder: str
    encoder_version: str
    image_size: int | None
    device: str
    batch_size: int

    def chunks(self, samples: Samples) -> list[tuple[range, str]]:
        """The rows of each chunk and its digest: one made under another digest is of other inputs or settings."""
        size = self.batch_size * CHUNK_BATCHES
        cuts = [range(first, min(first + size, len(samples))) for first in range(0, len(samples), size)]
        return [(rows, self._digest(samples, rows)) for rows in cuts]

    def _digest(self, samples: Samples, rows: range) -> str:
        digest = hashlib.sha256(json.dumps(asdict(self)).encode())
        for row in rows:
            state = samples.state(row).encode("utf-8", "surrogatepass")
            digest.update(f"{len(state)} ".encode() + state)
        return digest.hexdigest()


class ChunkStore:
    """The folder `<out>.part` with the plan and a file a chunk."""

    def __init__(self, out: Path, plan: EmbeddingPlan) -> None:
        self.folder = part_folder(out)
        path = self.folder / "plan.json"
        if not path.is_file():
            write_text(path, json.dumps(asdict(plan), indent=1))
            return
        begun, planned = json.loads(path.read_text()), asdict(plan)
        changed = [
            f"{key} {begun.get(key)!r}, now {planned[key]!r}" for key in planned if begun.get(key) != planned[key]
        ]
        if changed:
            raise InputError(
                f"{self.folder} was begun with {'; '.join(changed)}: give the same settings to --resume, "
                "or delete the folder to start again."
            )

    def load(self, number: int, digest: str) -> Chunk | None:
        """A chunk, or None if it is not there, damaged, or of other inputs than now."""
        path = self._path(number)
        if not path.is_file():
            return None
        try:
            arrays = read_arrays(path)
        except ValueError:
            return None
        return Chunk(arrays["features"], arrays["kept"]) if str(arrays.get("digest")) == digest else None

    def blocks(self, digests: Iterable[str]) -> Iterator[np.ndarray]:
        """The features of all chunks, one chunk at a time."""
        for number, digest in enumerate(digests):
            chunk = self.load(number, digest)
            if chunk is None:
                raise UnreadableError(f"{self._path(number)} vanished or changed in mid-run: --resume makes it again.")
            yield chunk.features

    def save(self, number: int, digest: str, chunk: Chunk) -> None:
        rows, width = chunk.features.shape
        arrays = {"kept": chunk.kept, "digest": np.array(digest)}
        write_arrays(self._path(number), arrays, [chunk.features], (rows, width))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


def part_folder(out: Path) -> Path:
    """Where an unfinished run keeps its chunks.

    >>> part_folder(Path("features.npz")).name
    'features.npz.part'
    """
    return out.with_name(f"{out.name}.part")


def refuse_existing(out: Path) -> None:
    """Neither a result nor hours of unfinished work is overwritten by a run that does not say --resume."""
    part = part_folder(out)
    if out.exists():
        raise ExistingFileError(f"{out} is there already: delete it, or choose another --out.")
    done = len(list(part.glob("*.npz")))
    if done:  # a run that stopped before its first chunk has nothing to lose
        raise ExistingFileError(
            f"{part} holds an unfinished run ({done} chunks): --resume goes on with it; delete it to start again."
        )
    (part / "plan.json").unlink(missing_ok=True)
