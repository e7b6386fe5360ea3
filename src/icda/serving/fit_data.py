"""What `icda fit` is given: features with labels, made from images or texts where they are not there yet."""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from icda.data.embedding import Features, embed
from icda.data.embedding.run import Progress
from icda.data.embedding.samples import Columns, Samples
from icda.data.own.reading import read_samples
from icda.errors import ExistingFileError, InputError, MissingFileError
from icda.models.encoders import create_encoder
from icda.results.files import read_json, write_atomically
from icda.serving.folder import SOURCE
from icda.serving.model import check_finite

EMBEDDED = "features.npz"
REMEDY = "Repair or remove them, or leave them out with --skip-unreadable; the same command keeps what was done."
ADVICE = "A model learns from examples of each class: put the images of each into a folder of its own."
OPTIONS: tuple[str, ...] = (
    "features",
    "labels",
    "names",
    "groups",
    "image-column",
    "text-column",
    "table",
    "encoder",
    "image-size",
)
OPTIONS += ("skip-unreadable", "allow-outside", "where")


@dataclass(frozen=True)
class Asked(Columns):
    """What the user named; the rest is guessed from common names."""

    encoder: str | None = None
    image_size: int | None = None
    skip_unreadable: bool = False

    def as_arguments(self) -> list[str]:
        """The options of the command that ask for the same."""
        words: list[str] = []
        for name in OPTIONS:
            value = getattr(self, name.removesuffix("-column").replace("-", "_"))
            if value not in (None, False, ()):
                words += [f"--{name}", *([] if value is True else value if isinstance(value, tuple) else [str(value)])]
        return words


def read_fit_data(
    path: Path, asked: Asked, folder: Path, overwrite: bool = False, progress: Progress | None = None
) -> Samples:
    """Features of a file as they are; those of images and texts are made, and kept in the model's folder."""
    samples = read_samples(path, asked, encode=True, advice=ADVICE).with_class_names()
    if samples.labels.dtype == object:
        samples = replace(samples, labels=samples.labels.astype(str))
    if samples.features is None:
        check_classes(samples, path)  # before hours of embedding
        samples = _embedded(samples, asked, folder, overwrite, progress)
    if asked.groups is None:  # those of a usual name are kept in the features file, and not used
        samples = replace(samples, groups=None, attributes=None)
    return checked(samples, path)


def checked(samples: Samples, path: Path | str) -> Samples:
    """The samples with features as floats, where a classifier can be fitted to them."""
    features, groups = as_floats(np.asarray(samples.features)), samples.groups
    check_finite(features, samples.reads.columns, path)
    if samples.labels.ndim == 1:
        check_classes(samples, path)
    if groups is not None and len(groups) and all(group is None for group in groups.tolist()):
        raise InputError(f"{path}: no group is known: fill some cells of that column, or leave --groups out.")
    if groups is not None and groups.astype(str).tolist() == samples.labels.astype(str).tolist():
        raise InputError(  # they would be treated as a shortcut
            f"{path}: the groups are the labels themselves. Name a column that says something else of the samples, such as "
            "where they come from."
        )
    return replace(samples, features=features)


def _embedded(samples: Samples, asked: Asked, folder: Path, overwrite: bool, progress: Progress | None) -> Samples:
    """The samples whose inputs can be read, with their features."""
    encoder = create_encoder(asked.encoder, samples.kind, asked.image_size)
    made = embed_once(samples, encoder, folder / EMBEDDED, asked.skip_unreadable, overwrite, progress)
    if len(made.skipped):
        gone = set(map(str, made.skipped))
        samples = samples.only(np.array([row for row, name in enumerate(samples.names) if name not in gone]))
    width, version, column = made.features.shape[1], made.encoder_version, samples.reads.column
    facts: dict[str, Any] = {"encoder": made.encoder, "encoder_version": version, "image_size": encoder.image_size}
    reads = replace(samples.reads, width=width, **facts)
    notes = () if column is None else (f"Taken for {samples.kind}s: the column {column!r}; no other column.",)
    return replace(samples, reads=reads, features=made.features, notes=notes, skipped=tuple(map(str, made.skipped)))


def embed_once(
    samples: Samples, encoder: Any, out: Path, skip_unreadable: bool, overwrite: bool, progress: Progress | None
) -> Features:
    """The features, read again if an earlier run made them of the same inputs."""
    options: Any = {"skip_unreadable": skip_unreadable, "resume": True, "progress": progress, "remedy": REMEDY}
    try:
        return embed(samples, encoder, out, **options)
    except ExistingFileError as error:
        if not overwrite:
            raise ExistingFileError(
                f"{out} is there from another fit, made of other inputs or settings: --overwrite makes it again; or choose "
                "another --out."
            ) from error
        out.unlink()
        return embed(samples, encoder, out, **options)


def check_classes(samples: Samples, path: Path | str) -> None:
    """Refuse training samples that are all of one class, or one alone of its class: the audit could not judge it."""
    test = samples.test
    known, counts = np.unique(samples.labels if test is None else samples.labels[~test], return_counts=True)
    if len(known) > 1 and counts.min() == 1:
        raise InputError(
            f"{path}: a model needs at least 2 samples per class, and there is only one of {known[counts.argmin()]}: add "
            "more, leave the class out, or merge it with another."
        )
    if len(known) == 1:
        which = "samples" if test is None else "training samples"
        raise InputError(f"{path}: all {which} are of one class, {known[0]}; a classifier needs at least 2 classes.")


def as_floats(X: np.ndarray) -> np.ndarray:
    if X.ndim != 2:
        raise InputError(f"the features have shape {X.shape}, expected (N, A): one row of numbers per sample.")
    if X.dtype.kind not in "fiub":
        raise InputError(f"the features are of type {X.dtype}, expected numbers.")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32 if X.dtype == np.float16 else np.float64)


def write_source(path: Path, folder: Path, data: Path, asked: Asked) -> None:
    """Note in a file the place of the data, as seen from the model's folder, and what their columns mean."""
    place = os.path.relpath(data.expanduser().resolve(), folder.resolve())
    write_atomically(path, json.dumps({"data": place, "asked": asdict(asked)}, indent=1).encode())


def read_source(folder: Path) -> tuple[Path, Asked]:
    """The data of a model. Its folder may be a stranger's: only data below the current folder, or beside it, are shown."""
    path = folder / SOURCE
    if not path.is_file():
        raise MissingFileError(f"{folder} does not say which data it was fitted to: give the data instead.")
    noted = read_json(path)
    try:
        asked = noted["asked"]  # an earlier icda had the columns of images and texts in a place of their own
        asked = {**asked.get("columns", {}), **asked, "table": asked.get("table") or None}
        known = TypeAdapter(Asked).validate_python(asked)
        data = (folder / str(noted["data"])).resolve()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} was not written by this icda ({error}): give the data instead.") from error
    if not any(data.is_relative_to(near.resolve()) for near in (Path.cwd(), folder.parent)):
        raise InputError(f"{path} names {data}, neither here nor beside the model: give the data instead.")
    here = Path.cwd().resolve()
    return data.relative_to(here) if data.is_relative_to(here) else data, known
