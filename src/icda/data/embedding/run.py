"""Encode all samples, chunk by chunk, so that a killed run goes on where it stopped."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from icda.data.embedding.features import Features, load_features, read_arrays, write_arrays
from icda.data.embedding.origin import origin_of
from icda.data.embedding.samples import Samples
from icda.data.images import DECODER_THREADS, decode_images, find_unreadable, unreadable
from icda.data.own.table import natural_order
from icda.engines import Engine, Here
from icda.errors import ExistingFileError, InputError, UnreadableError
from icda.results.files import write_atomically

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
        size, chunks = self.batch_size * CHUNK_BATCHES, []
        for first in range(0, len(samples), size):
            rows = range(first, min(first + size, len(samples)))
            digest = hashlib.sha256(json.dumps(asdict(self)).encode())
            for row in rows:
                state = samples.state(row).encode("utf-8", "surrogatepass")
                digest.update(f"{len(state)} ".encode() + state)
            chunks.append((rows, digest.hexdigest()))
        return chunks


class ChunkStore:
    """The folder `<out>.part` with the plan and a file a chunk."""

    def __init__(self, out: Path, plan: EmbeddingPlan) -> None:
        self.folder = part_folder(out)
        path = self.folder / "plan.json"
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(asdict(plan), indent=1).encode())
            return
        begun, planned = json.loads(path.read_text()), asdict(plan)
        if differ := [key for key in planned if begun.get(key) != planned[key]]:
            changed = [f"{key} {begun.get(key)!r}, now {planned[key]!r}" for key in differ]
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
    """Where an unfinished run keeps its chunks."""
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


Progress = Callable[[int, int], None]  # samples done, samples in all
REMEDY = "Repair or remove them, or leave them out with --skip-unreadable; --resume keeps what was done."


class Encoder(Protocol):
    """Images as bytes (N, H, W, 3), or a list of N texts, to features (N, A)."""

    name: str
    version: str
    device: str
    image_size: int | None

    @property
    def kind(self) -> Any: ...

    def encode(self, inputs: Any) -> Tensor: ...


def embed(
    samples: Samples,
    encoder: Encoder,
    out: str | PathLike[str],
    *,
    batch_size: int = 32,
    skip_unreadable: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    remedy: str = REMEDY,
    engine: Engine | None = None,
) -> Features:
    """Encode `samples` and write the features file `out`; see `Features` for what is in it.

    Finished chunks wait in `<out>.part/`; with `resume` those that still fit their inputs are kept, and the file is the
    same to the byte. An unreadable image stops the run with `remedy` as advice, unless `skip_unreadable` lists it under
    `skipped`. The `engine` says where chunks are encoded: here by default, or on Ray, whose workers must see the files.
    """
    out = Path(out).expanduser()
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}, expected 1 or more.")
    if samples.kind != encoder.kind:
        raise InputError(f"the encoder {encoder.name} takes {encoder.kind}s, but the inputs are {samples.kind}s.")
    plan = EmbeddingPlan(encoder.name, encoder.version, encoder.image_size, encoder.device, batch_size)
    chunks = plan.chunks(samples)
    fingerprint = samples.fingerprint(digest for _, digest in chunks)
    if resume and out.exists():
        if str(read_arrays(out, ["fingerprint"]).get("fingerprint")) != fingerprint:
            raise ExistingFileError(
                f"{out} is there, made of other inputs or settings: delete it, or choose another --out."
            )
        # A run killed between its last two steps leaves its chunks beside the file.
        shutil.rmtree(part_folder(out), ignore_errors=True)
        return load_features(out)
    if not resume:
        refuse_existing(out)
    # Known before the first hour of work, not after it.
    gone = [path for path in samples.inputs if isinstance(path, Path) and not path.is_file()]
    if gone and not skip_unreadable:
        raise unreadable(gone, "are not there (paths of a table are relative to it)", remedy)
    store = ChunkStore(out, plan)
    kept: dict[int, np.ndarray] = {}  # which samples of a finished chunk could be read; its features wait on disk
    width = 0
    for number, (_, digest) in enumerate(chunks):
        chunk = store.load(number, digest)
        if chunk is not None and (skip_unreadable or chunk.kept.all()):
            kept[number], width = chunk.kept, max(width, chunk.features.shape[1])
    missing = [number for number in range(len(chunks)) if number not in kept]
    done = len(samples) - sum(len(chunks[number][0]) for number in missing)
    spans = [chunks[number][0] for number in missing]
    made = (engine or Here()).each(encode_rows, spans, samples, encoder, batch_size, skip_unreadable, remedy)
    for number, chunk in zip(missing, made, strict=True):
        rows, digest = chunks[number]
        store.save(number, digest, chunk)
        kept[number], width = chunk.kept, max(width, chunk.features.shape[1])  # no width where nothing could be read
        done += len(rows)
        if progress is not None:
            progress(done, len(samples))
    arrays = _columns(samples, np.concatenate([kept[number] for number in range(len(chunks))]))
    about: dict[str, str | int] = {"encoder": encoder.name, "encoder_version": encoder.version}
    if encoder.image_size is not None:  # at another one the same image has other features
        about["image_size"] = encoder.image_size
    about |= {"fingerprint": fingerprint, **origin_of(samples, out)}
    arrays |= {name: np.array(value) for name, value in about.items()}
    write_arrays(out, arrays, store.blocks(digest for _, digest in chunks), (len(arrays["id"]), width))
    shutil.rmtree(store.folder)
    return load_features(out)


def encode_rows(
    rows: range, samples: Samples, encoder: Encoder, batch_size: int, skip_unreadable: bool, remedy: str = REMEDY
) -> Chunk:
    """Features of some samples; `remedy` is what the error about unreadable images advises."""
    # Texts of like length together: padding to the longest of a mixed batch would be most of the work.
    order = sorted(rows, key=lambda row: len(str(samples.inputs[row]))) if samples.kind == "text" else list(rows)
    blocks: dict[int, np.ndarray] = {}
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        readable, inputs = _read(samples, batch, encoder.image_size, None if skip_unreadable else remedy)
        if not readable:
            continue
        features = encoder.encode(inputs).numpy()
        finite = np.isfinite(features).all(1)
        if not finite.all():
            raise InputError(
                f"the encoder {encoder.name} gives NaN or infinity for {samples.ids[readable[int(finite.argmin())]]}: "
                "look at that input, or choose another encoder."
            )
        blocks.update(zip(readable, features, strict=True))
    kept = np.array([row in blocks for row in rows])
    features = np.stack([blocks[row] for row in rows if row in blocks]) if blocks else np.empty((0, 0))
    return Chunk(features.astype(np.float32), kept)


def _read(samples: Samples, batch: list[int], image_size: int | None, remedy: str | None) -> tuple[list[int], Any]:
    """Those rows of a batch that can be read, and their inputs; without a remedy the others are left out."""
    if samples.kind == "text":
        return batch, [samples.inputs[row] for row in batch]
    assert image_size is not None
    # In a process that has few of the cores, more decoders would take those of its neighbours.
    threads = min(DECODER_THREADS, torch.get_num_threads())
    decoded = decode_images([Path(samples.inputs[row]) for row in batch], image_size, threads=threads)
    images = {row: image for row, image in zip(batch, decoded, strict=True) if isinstance(image, np.ndarray)}
    if len(images) < len(batch) and remedy is not None:
        # Where one is broken others may be: name them all now, not one by one in as many runs.
        broken = find_unreadable([Path(path) for path in samples.inputs], image_size)
        raise unreadable(broken, "cannot be read as images", remedy)
    stacked = torch.from_numpy(np.stack(list(images.values()))) if images else None
    return list(images), stacked


def _columns(samples: Samples, kept: np.ndarray) -> dict[str, np.ndarray]:
    """What is known of the samples that could be read, and the ids of the others."""
    if not kept.any():
        raise InputError(f"none of the {len(samples)} inputs can be read: nothing to write.")
    ids = np.array(samples.ids)
    arrays = {"id": ids[kept], "skipped": ids[~kept]}
    groups = samples.crossed()[0]
    for name, plural, values in (("y", "class_names", samples.labels), ("group", "group_names", groups)):
        if values is not None:
            arrays[name] = np.array(values)[kept]
            arrays[plural] = np.array(natural_order(arrays[name].tolist()))
            codes = {value: code for code, value in enumerate(arrays[plural].tolist())}
            arrays[f"{name}_code"] = np.array([codes[value] for value in arrays[name].tolist()], dtype=np.int64)
    if samples.splits is not None:
        arrays["split"] = samples.splits[kept]
    return arrays
