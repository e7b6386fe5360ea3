"""What is asked of somebody's data, and what was read of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

import numpy as np

from icda.data.missing import is_missing
from icda.data.own.encoding import Plan, feature_names, plan_from_list
from icda.data.own.table import crossed_groups, split_names
from icda.errors import InputError
from icda.limits import check_side
from icda.settings import check

KINDS = ("image", "text", "features")


@dataclass(frozen=True)
class Reads:
    """Of what kind inputs are, how many features there are, and where they stand in a file.

    `column` is the column of paths or texts in a table, `columns` those of the features or, among several arrays, `array`;
    `label` and `group` are those of labels and groups, where the user named them. A model remembers it of its fit.
    """

    kind: Literal["image", "text", "features"]
    width: int = 0  # not known before images or texts are embedded
    encoder: str | None = None
    encoder_version: str | None = None
    image_size: int | None = None
    column: str | None = None
    columns: tuple[str, ...] | None = None
    label: str | None = None
    group: str | None = None
    array: str | None = None
    table: Plan | None = None  # how words, dates and empty cells of a table become features

    @property
    def fitted(self) -> tuple[str, ...] | None:
        """The columns of a table that a model was fitted to."""
        return self.columns if self.table is None else tuple(one.name for one in self.table)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"table": None if self.table is None else [asdict(one) for one in self.table]}

    @classmethod
    def from_dict(cls, values: object, origin: str) -> Self:
        """Checked: the values may come from a stranger's file."""
        given: dict[str, Any] = dict(values) if isinstance(values, Mapping) else {}
        if given.get("kind") not in KINDS:
            raise InputError(f"{origin} does not say what the model reads ({', '.join(KINDS)}).")
        if isinstance(given.get("columns"), list):
            given["columns"] = tuple(given["columns"])
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name != "table"}
        saved: dict[str, Any] = {name: given.get(name) for name in kinds}
        check(saved, kinds, f"{origin}: ")
        if str(saved["label"]).lower().endswith(".npy"):  # an earlier icda kept the path of the labels
            saved["label"] = None
        if (size := saved["image_size"]) is not None:
            check_side(size, origin)
        table = None if given.get("table") is None else plan_from_list(given["table"], origin)
        if table is not None and len(feature_names(table)) != saved["width"]:
            raise InputError(f"{origin}: the table makes {len(feature_names(table))} features, not {saved['width']}.")
        return cls(**saved, table=table)

    def check_made_alike(self, found: Reads, path: Path) -> None:
        """Refuse features that another encoder made, or the same one of images of another size."""
        version, fitted = found.encoder_version, self.encoder_version
        if version is not None and fitted is not None and weights_of(version) != weights_of(fitted):
            raise InputError(
                f"{path} holds features of {found.encoder} ({version}), the model was fitted to those of "
                f"{self.encoder} ({fitted}): embed with the same encoder."
            )
        if None not in (found.image_size, self.image_size) and found.image_size != self.image_size:
            raise InputError(
                f"{path} holds features of images of {found.image_size} pixels a side, the model was fitted to those of "
                f"{self.image_size}: embed with --image-size {self.image_size}."
            )


def weights_of(version: str) -> str:
    """The digest of an encoder's weights, which decides what it answers; a package may have several versions of it.

    >>> weights_of("some_package 0.1, weights 0123456789ab")
    '0123456789ab'
    """
    return version.rpartition("weights ")[2]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table, or arrays of a file, to take; those left out are recognised by their usual names.

    `where` keeps rows, each "name=value". `table` says whether a .csv is a table of features or of images or texts; by
    default its columns say so. `reads` is how a model read the data of its fit: others are read alike.
    """

    image: str | None = None
    text: str | None = None
    labels: str | None = None
    groups: str | None = None
    splits: str | None = None
    attributes: str | None = None
    features: str | None = None
    names: str | None = None
    where: tuple[str, ...] = ()
    unlabelled: bool = False  # whether labels are not looked for; of a folder, every image below it is taken
    encode: bool = False  # words, truth values, dates and empty cells of a table become features, too
    table: bool | None = None
    allow_outside: bool = False  # whether a table or links that lead out of their folder are trusted
    whole: bool = False  # whether a table with a missing image or an empty text is refused
    reads: Reads | None = None


@dataclass(frozen=True)
class Samples:
    """What is known of samples, in a fixed order; None for what the data do not say.

    `ids` are paths, names or, where there are none, the numbers of the rows. `inputs` are paths of images or texts, and
    `features` (N, A) what was made of them, or what stood in a file. Groups and attributes are as the data name them, None
    where one is not known; labels may be numbers that `class_names` explains. `source` is what they were read from.
    """

    reads: Reads
    ids: Any  # (N,)
    inputs: Any = None  # (N,) paths or texts
    features: Any = None  # (N, A)
    labels: Any = None  # (N,), as all that follows
    class_names: np.ndarray | None = None
    groups: np.ndarray | None = None
    attributes: np.ndarray | None = None  # of a column of attributes, which make groups with the labels
    splits: np.ndarray | None = None
    source: Path | None = None
    notes: tuple[str, ...] = ()  # what was taken and what was left out, for the user
    embedding: Mapping[str, str] = field(default_factory=dict)  # of a features file: encoder, version, where inputs lie
    skipped: tuple[str, ...] = ()  # what could not be read
    answered: tuple[int, int] = (0, 0)  # how many groups, and how many labels, a person named

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def kind(self) -> Any:
        return self.reads.kind

    @property
    def suffix(self) -> str:
        """Of the file that they were read from."""
        return "" if self.source is None else self.source.suffix.lower()

    @cached_property
    def names(self) -> list[str]:
        """The ids as texts."""
        return [str(name) for name in self.ids]

    @cached_property
    def split_names(self) -> list[str] | None:
        """The split of each sample by the name that icda has for it."""
        return None if self.splits is None else split_names(self.splits.tolist(), str(self.source))

    @cached_property
    def test(self) -> np.ndarray | None:
        """Whether each sample (N,) is of the test split; None where none is, or all are."""
        test = np.array([name == "test" for name in self.split_names or ()])
        return test if test.any() and not test.all() else None

    @cached_property
    def training(self) -> Self:
        """Without the samples of the test split."""
        return self if self.test is None else self.only(np.flatnonzero(~self.test))

    def only(self, rows: np.ndarray) -> Self:
        """Some of the samples, all that is known of them with them."""
        kept: dict[str, Any] = {}
        for name in ("ids", "inputs", "features", "labels", "groups", "attributes", "splits"):
            own = getattr(self, name)
            if own is not None:
                kept[name] = own[rows] if isinstance(own, np.ndarray) else [own[row] for row in rows.tolist()]
        return replace(self, **kept)

    def with_class_names(self) -> Self:
        """Labels by the names that the file gives to their numbers, where it has one for each."""
        names, labels = self.class_names, self.labels
        if names is None or labels is None or not len(labels):
            return self
        if not 0 <= labels.min() <= labels.max() < len(names):
            note = f"Labels stay numbers, {labels.min()} to {labels.max()}: the class_names are {len(names)}."
            return replace(self, notes=(*self.notes, note))
        return replace(self, labels=names[labels], class_names=None)

    def crossed(self) -> tuple[list[str] | None, list[str] | None]:
        """Groups as fit, train and eval judge them, class x attribute, and the attributes where groups were made of them.

        A group that is not known is empty.
        """
        labels = None if self.labels is None else [str(label) for label in self.labels.tolist()]
        given = self.attributes if self.groups is None else self.groups
        if given is None or (self.groups is None and labels is None):
            return None, None
        return crossed_groups(labels, texts_of(given), are_attributes=self.groups is None)

    def state(self, row: int) -> str:
        """What must be the same for an earlier result to be good: a text, or an image's name, size and time of change."""
        sample = self.inputs[row]
        if isinstance(sample, str):
            return sample
        try:
            status = sample.stat()
        except OSError:
            return f"{self.ids[row]} missing"
        return f"{self.ids[row]} {status.st_size} {status.st_mtime_ns}"

    def fingerprint(self, digests: Iterable[str]) -> str:
        """SHA-256 over what is known of the samples, and the digests of their inputs."""
        labels = None if self.labels is None else self.labels.tolist()
        known = [*digests], [*self.ids], labels, self.crossed()[0], self.split_names
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def texts_of(values: np.ndarray) -> list[str]:
    """Values as texts, empty where one is missing."""
    return ["" if is_missing(value) else str(value) for value in values.tolist()]
