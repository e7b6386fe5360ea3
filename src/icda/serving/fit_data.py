"""What `icda fit` is given: features with labels, made from images or texts where they are not there yet."""

import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter

from icda.data.embedding import Features, Samples, embed, read_samples
from icda.data.embedding.run import Progress
from icda.data.embedding.samples import Columns
from icda.data.missing import is_missing
from icda.data.own import table as tables
from icda.data.own.encoding import kind_of
from icda.data.own.feature_files import NAMES, LabelledFeatures, read_feature_file
from icda.errors import ExistingFileError, InputError, MissingFileError
from icda.models.encoders import DEFAULTS, create_encoder
from icda.results.files import read_json, write_atomically
from icda.serving.folder import SOURCE
from icda.serving.model import Reads, check_finite

FILES = (".npz", ".parquet", ".npy")
AMBIGUOUS = 2  # columns of numbers beside texts or paths from which the user is asked what is meant
EMBEDDED = "features.npz"
REMEDY = "Repair or remove them, or leave them out with --skip-unreadable; the same command keeps what was done."
ADVICE = "A model learns from examples of each class: put the images of each into a folder of its own."


@dataclass(frozen=True)
class Asked(Columns):
    """What the user named; the rest is guessed from common names."""

    encoder: str | None = None
    image_size: int | None = None
    table: bool = False  # whether a .csv with a column of texts or paths is a table of features all the same
    skip_unreadable: bool = False
    allow_outside: bool = False


@dataclass(frozen=True)
class FitData:
    """Features (N, A), labels and names (N,); `samples` are the images or texts behind the rows, where there are any."""

    features: np.ndarray
    labels: np.ndarray
    names: list[str]
    reads: Reads
    samples: Samples | None = None
    groups: np.ndarray | None = None  # (N,) as the user named them
    test: np.ndarray | None = None  # (N,) whether a row is of the test split, where the data name one
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    answered: tuple[int, int] = (0, 0)  # how many groups, and how many labels, a person named
    suffix: str = ""  # of the file that the features stand in

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def training(self) -> Self:
        """Without the rows of the test split."""
        return self if self.test is None else self.only(np.flatnonzero(~self.test))

    def only(self, rows: np.ndarray) -> Self:
        """Some of the rows, with no split among them."""
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            names=[self.names[row] for row in rows],
            samples=None if self.samples is None else self.samples.only(rows.tolist()),
            groups=None if self.groups is None else self.groups[rows],
            test=None,
        )


def read_fit_data(
    path: Path, asked: Asked, folder: Path, overwrite: bool = False, progress: Progress | None = None
) -> FitData:
    """Features of a file as they are; those of images and texts are made, and kept in the model's folder."""
    if not path.exists():
        raise MissingFileError(f"{path.absolute()} is not there: give a folder of images, a .csv, .npz or .parquet.")
    if path.is_file() and (asked.table or path.suffix.lower() in FILES or not has_raw_inputs(path, asked)):
        data = of_features(read_feature_file(path, replace(asked, encode=True)), asked, path, path.suffix)
    else:
        data = _from_inputs(path, asked, folder, overwrite, progress)
    if data.groups is not None and data.groups.astype(str).tolist() == data.labels.astype(str).tolist():
        raise InputError(  # they would be treated as a shortcut
            f"{path}: the groups are the labels themselves. Name a column that says something else of the samples, such as "
            "where they come from."
        )
    return data


def _from_inputs(path: Path, asked: Asked, folder: Path, overwrite: bool, progress: Progress | None) -> FitData:
    if asked.where:
        raise InputError(f"--where goes with a file of features or numbers; {path} has images or texts: leave it out.")
    samples = read_samples(path, asked, allow_outside=asked.allow_outside, advice=ADVICE)
    assert samples.labels is not None
    test = None if samples.splits is None else tables.held_out_rows(np.array(samples.splits), str(path))
    check_classes(np.array(samples.labels), test, path)  # before hours of embedding
    encoder = create_encoder(asked.encoder, samples.kind, asked.image_size)
    made = embed_once(samples, encoder, folder / EMBEDDED, asked.skip_unreadable, overwrite, progress)
    if len(made.skipped):
        gone = set(map(str, made.skipped))
        samples = samples.only([row for row, name in enumerate(samples.ids) if str(name) not in gone])
    test = None if samples.splits is None else tables.held_out_rows(np.array(samples.splits), str(path))
    width, size, label = made.features.shape[1], encoder.image_size, asked.labels
    reads = Reads(
        samples.kind, width, made.encoder, made.encoder_version, size, samples.column, label=label, group=asked.groups
    )
    assert made.y is not None
    check_classes(made.y, test, path)  # again: what could not be read is left out
    names = [str(name) for name in made.id]
    skipped = tuple(map(str, made.skipped))
    groups = None
    if asked.groups is not None:
        assert samples.groups is not None  # the column was named, so it was found or refused
        groups = known_groups(np.array(samples.groups if samples.attributes is None else samples.attributes), path)
    note = f"Taken for {samples.kind}s: the column {samples.column!r}; no other column."
    notes = () if samples.column is None else (note,)
    return FitData(as_floats(made.features), made.y, names, reads, samples, groups, test, notes, skipped)


def has_raw_inputs(path: Path, columns: Columns) -> bool:
    """Whether a table names images or texts; else its columns of numbers are the features."""
    if columns.image is not None or columns.text is not None:
        return True
    table = tables.read_table(path)
    found = [table.find(role, None, usual) for role, usual in (("image", tables.IMAGE), ("text", tables.TEXT))]
    raw = next((name for name in found if name is not None), None)
    if raw is None:
        return False
    answers = {*tables.LABEL, *tables.GROUP, *tables.ATTRIBUTE, *tables.SPLIT, *NAMES}
    numbers = [
        name
        for name, cells in table.columns.items()
        if name not in (raw, columns.labels, columns.groups)
        and name.lower() not in answers
        and kind_of(cells) == "number"
    ]
    if len(numbers) >= AMBIGUOUS:
        option = "--image-column" if raw == found[0] else "--text-column"
        raise InputError(
            f"{path} has a column {raw!r} and {len(numbers)} columns of numbers ({tables.listed(numbers)}): which is it? "
            f"{option} {raw} fits a model of that column alone; --table fits one of all columns, and leaves {raw!r} out if "
            "it is free text."
        )
    return True


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


def check_classes(labels: np.ndarray, test: np.ndarray | None, path: Path | str) -> None:
    """Refuse training samples that are all of one class, or one alone of its class: the audit could not judge it."""
    known, counts = np.unique(labels if test is None else labels[~test], return_counts=True)
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


def of_features(found: LabelledFeatures, asked: Asked, path: Path | str, suffix: str) -> FitData:
    """The data of a file, or of a data frame."""
    labels = np.asarray(found.labels)
    if found.class_names is not None and len(labels) and 0 <= labels.min() <= labels.max() < len(found.class_names):
        labels = found.class_names[labels]
    if labels.dtype == object:
        labels = labels.astype(str)
    names = range(len(labels)) if found.names is None else found.names
    test = None if found.splits is None else tables.held_out_rows(found.splits, str(path))
    # The labels of an .npy are another file: those of these rows, and of no others that the model is judged on later.
    label = None if suffix.lower() == ".npy" else asked.labels
    reads = replace(_reads(found), label=label, group=asked.groups, table=found.plan)
    features = as_floats(np.asarray(found.features))
    check_finite(features, found.columns, path)
    if labels.ndim == 1:
        check_classes(labels, test, path)
    groups = None if found.groups is None else known_groups(np.asarray(found.groups), path)
    return FitData(
        features, labels, [str(name) for name in names], reads, None, groups, test, found.notes, suffix=suffix
    )


def known_groups(groups: np.ndarray, path: Path | str) -> np.ndarray:
    """Groups as they are or, where some are missing or empty, as objects with None in their place."""
    missing = np.array([is_missing(group) or group == "" for group in groups.tolist()], dtype=bool)
    if missing.all() and len(groups):
        raise InputError(f"{path}: no group is known: fill some cells of that column, or leave --groups out.")
    if not missing.any():
        return groups.astype(str) if groups.dtype == object else groups
    known = groups.astype(object)
    known[missing] = None
    return known


def _reads(found: LabelledFeatures) -> Reads:
    """Features of a shipped encoder are those of images or texts: the model can then read these, too."""
    width, encoder = int(np.asarray(found.features).shape[-1]), found.embedding.get("encoder")
    version, column = found.embedding.get("encoder_version"), found.embedding.get("source_column")
    kind = next((kind for kind, name in DEFAULTS.items() if name == encoder), None)
    given = found.embedding.get("image_size", "")
    size = int(given) if given.isdecimal() else None
    # Files of an earlier icda do not say how large the images were: at another size their features would be others.
    if kind is None or version is None or (kind == "image" and size is None):
        return Reads("features", width, encoder, version, size, columns=found.columns, array=found.array)
    return Reads(kind, width, encoder, version, size, column, array=found.array)


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
        known = TypeAdapter(Asked).validate_python({**asked.get("columns", {}), **asked})
        data = (folder / str(noted["data"])).resolve()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} was not written by this icda ({error}): give the data instead.") from error
    if not any(data.is_relative_to(near.resolve()) for near in (Path.cwd(), folder.parent)):
        raise InputError(f"{path} names {data}, neither here nor beside the model: give the data instead.")
    here = Path.cwd().resolve()
    return data.relative_to(here) if data.is_relative_to(here) else data, known
