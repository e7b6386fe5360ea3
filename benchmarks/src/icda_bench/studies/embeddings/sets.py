"""Real data as fixed features with a train, validation and test part, and attributes that make groups."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from icda.errors import MissingFileError

Array = np.ndarray


@dataclass(frozen=True)
class Part:
    """Features (N, A), labels (N,) and, by name, attributes (N,): numbers from 0."""

    features: Array
    targets: Array
    attributes: dict[str, Array]

    def rows(self, rows: Array) -> Part:
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        return Part(self.features[rows], self.targets[rows], attributes)

    def groups(self, attribute: str) -> Array:
        """(class, attribute) as one number."""
        values = self.attributes[attribute]
        return self.targets * (int(values.max()) + 1) + values


@dataclass(frozen=True)
class FeatureSet:
    """Three parts and metadata: small, trusted, and balanced where the attribute is known."""

    name: str
    train: Part
    validation: Part
    test: Part
    metadata: Part
    inverse_decays: tuple[float, ...]  # what C is chosen from

    def standardised(self) -> FeatureSet:
        """Every feature with mean zero and deviation one on the training part."""
        mean, scale = self.train.features.mean(0), self.train.features.std(0)
        scale = np.where(scale > 1e-6, scale, 1.0).astype(np.float32)

        def scaled(part: Part) -> Part:
            return Part((part.features - mean) / scale, part.targets, part.attributes)

        return replace(
            self,
            train=scaled(self.train),
            validation=scaled(self.validation),
            test=scaled(self.test),
            metadata=scaled(self.metadata),
        )


def waterbirds(root: Path, seed: int, cache: Path) -> FeatureSet:
    """Birds on land and water, features of a frozen ResNet-50; the official split, whatever the seed."""
    with np.load(_there(root / "waterbirds_resnet50.npz"), allow_pickle=False) as data:
        features, targets = data["feats"].astype(np.float32), data["y"].astype(np.int64)
        places, split = data["place"].astype(np.int64), data["split"]
    whole = Part(features, targets, {"place": places})
    train, validation, test = (whole.rows(np.flatnonzero(split == number)) for number in range(3))
    return FeatureSet("waterbirds", train, validation, test, validation, (1e-5, 1e-4, 1e-3))


def adult(root: Path, seed: int, cache: Path) -> FeatureSet:
    """Income above 50,000 dollars; sex and race are among the features, as in the published one-hot table."""
    with zipfile.ZipFile(_there(root / "tabular" / "adult.csv.zip")) as archive:
        names, table = _numbers(io.TextIOWrapper(archive.open("adult.csv"), "utf-8"))
    columns = {name: place for place, name in enumerate(names)}
    targets = table[:, columns["salary_>50K"]].astype(np.int64)
    attributes = {
        "sex": table[:, columns["sex_Female"]].astype(np.int64),
        "race": 1 - table[:, columns["race_White"]].astype(np.int64),
    }
    inputs = [place for name, place in columns.items() if not name.startswith("salary_")]
    return _split("adult", Part(table[:, inputs], targets, attributes), seed)


COMPAS_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
COMPAS_RACES = ("African-American", "Caucasian")  # all others together: some have fewer than 20 people


def compas(root: Path, seed: int, cache: Path) -> FeatureSet:
    """Arrested again within two years; from age, record, charge, sex and race."""
    with gzip.open(_there(root / "tabular" / "compas.csv.gz"), "rt", encoding="utf-8") as file:
        people = list(csv.DictReader(file))
    sex = np.array([int(person["sex"] == "Female") for person in people])
    race = np.array([COMPAS_RACES.index(person["race"]) if person["race"] in COMPAS_RACES else 2 for person in people])
    numbers = np.array([[float(person[name]) for name in COMPAS_NUMBERS] for person in people])
    felony = np.array([person["c_charge_degree"] == "F" for person in people])
    features = np.column_stack([numbers, np.log1p(numbers[:, 1:]), felony, sex, np.eye(3)[race]]).astype(np.float32)
    targets = np.array([int(person["two_year_recid"]) for person in people])
    return _split("compas", Part(features, targets, {"sex": sex, "race": race}), seed)


def cad_imdb(root: Path, seed: int, cache: Path) -> FeatureSet:
    """Film reviews: train on originals, test on those that people rewrote to say the opposite; MiniLM embeddings.

    Metadata are the rewritten reviews of the development part; validation is its originals.
    """
    parts = {}
    for origin in ("orig", "new"):
        for name in ("train", "dev", "test"):
            labels, texts = _reviews(_there(root / "text.tar.xz"), f"text/cad/sentiment/{origin}/{name}.tsv")
            features = _embedded(texts, cache / f"cad_{origin}_{name}.npy")
            parts[origin, name] = Part(features, labels, {"none": np.zeros_like(labels)})
    chosen = (parts["orig", "train"], parts["orig", "dev"], parts["new", "test"], parts["new", "dev"])
    return FeatureSet("cad_imdb", *chosen, (1e-5, 1e-4, 1e-3, 1e-2))


SETS: dict[str, Callable[[Path, int, Path], FeatureSet]] = {
    "waterbirds": waterbirds,
    "adult": adult,
    "compas": compas,
    "cad_imdb": cad_imdb,
}


def _split(name: str, whole: Part, seed: int) -> FeatureSet:
    """60 : 20 : 20 by seed; metadata are the validation samples, to be balanced by whoever uses them."""
    order = np.random.default_rng(seed).permutation(len(whole.targets))
    first, second = int(0.6 * len(order)), int(0.8 * len(order))
    train, validation, test = (whole.rows(rows) for rows in np.split(order, [first, second]))
    return FeatureSet(name, train, validation, test, validation, (1e-4, 1e-3, 1e-2, 1e-1, 1.0))


def _numbers(file: io.TextIOBase) -> tuple[list[str], Array]:
    reader = csv.reader(file)
    names = next(reader)
    return names, np.array(list(reader), dtype=np.float32)


def _reviews(archive: Path, member: str) -> tuple[Array, list[str]]:
    with lzma.open(archive) as packed, tarfile.open(fileobj=packed) as files:
        file = files.extractfile(member)
        assert file is not None
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE))
    return np.array([int(row["Sentiment"] == "Positive") for row in rows]), [row["Text"] for row in rows]


def _embedded(texts: Sequence[str], path: Path) -> Array:
    """MiniLM's sentence embeddings, computed once."""
    if path.exists():
        return np.load(path, allow_pickle=False)
    from icda.models.encoders import TextEncoder
    from icda.models.minilm import minilm

    encoder = minilm("text")
    assert isinstance(encoder, TextEncoder)
    rows = [encoder.encode(list(texts[start : start + 32])).numpy() for start in range(0, len(texts), 32)]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.concatenate(rows).astype(np.float32))
    return np.load(path, allow_pickle=False)


def _there(path: Path) -> Path:
    if not path.exists():
        raise MissingFileError(f"{path} is not there: point --root or ICDA_DATA to the folder with the data.")
    return path
