"""Real biased data as fixed features, with attributes that make groups."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icda_bench.studies.features import FeaturePart, FeatureSet, embed_texts, read_texts, read_waterbirds, there


@dataclass(frozen=True)
class BiasedSet(FeatureSet):
    """Three parts and metadata: small, trusted, and balanced where the attribute is known."""

    metadata: FeaturePart
    inverse_decays: tuple[float, ...]  # what C is chosen from


def waterbirds(root: Path, seed: int, cache: Path) -> BiasedSet:
    """The official split, whatever the seed."""
    whole, split = read_waterbirds(root)
    train, validation, test = (whole.rows(np.flatnonzero(split == number)) for number in range(3))
    return BiasedSet("waterbirds", train, validation, test, validation, (1e-5, 1e-4, 1e-3))


def adult(root: Path, seed: int, cache: Path) -> BiasedSet:
    """Income above 50,000 dollars; sex and race are among the features, as in the published one-hot table."""
    with zipfile.ZipFile(there(root / "tabular" / "adult.csv.zip")) as archive:
        names, *lines = csv.reader(io.TextIOWrapper(archive.open("adult.csv"), "utf-8"))
    table, columns = np.array(lines, dtype=np.float32), {name: place for place, name in enumerate(names)}
    targets = table[:, columns["salary_>50K"]].astype(np.int64)
    attributes = {
        "sex": table[:, columns["sex_Female"]].astype(np.int64),
        "race": 1 - table[:, columns["race_White"]].astype(np.int64),
    }
    inputs = [place for name, place in columns.items() if not name.startswith("salary_")]
    return _split("adult", FeaturePart(table[:, inputs], targets, attributes), seed)


COMPAS_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
COMPAS_RACES = ("African-American", "Caucasian")  # all others together: some have fewer than 20 people


def compas(root: Path, seed: int, cache: Path) -> BiasedSet:
    """Arrested again within two years; from age, record, charge, sex and race."""
    with gzip.open(there(root / "tabular" / "compas.csv.gz"), "rt", encoding="utf-8") as file:
        people = list(csv.DictReader(file))
    sex = np.array([int(person["sex"] == "Female") for person in people])
    race = np.array([COMPAS_RACES.index(person["race"]) if person["race"] in COMPAS_RACES else 2 for person in people])
    numbers = np.array([[float(person[name]) for name in COMPAS_NUMBERS] for person in people])
    felony = np.array([person["c_charge_degree"] == "F" for person in people])
    features = np.column_stack([numbers, np.log1p(numbers[:, 1:]), felony, sex, np.eye(3)[race]]).astype(np.float32)
    targets = np.array([int(person["two_year_recid"]) for person in people])
    return _split("compas", FeaturePart(features, targets, {"sex": sex, "race": race}), seed)


def cad_imdb(root: Path, seed: int, cache: Path) -> BiasedSet:
    """Film reviews: train on originals, test on those that people rewrote to say the opposite; MiniLM embeddings.

    Metadata are the rewritten reviews of the development part; validation is its originals.
    """
    parts = {}
    for origin in ("orig", "new"):
        for name in ("train", "dev", "test"):
            rows = read_texts(root, f"text/cad/sentiment/{origin}/{name}.tsv")
            labels = np.array([int(row["Sentiment"] == "Positive") for row in rows])
            features = embed_texts([row["Text"] for row in rows], cache / f"cad_{origin}_{name}.npy")
            parts[origin, name] = FeaturePart(features, labels, {"none": np.zeros_like(labels)})
    chosen = (parts["orig", "train"], parts["orig", "dev"], parts["new", "test"], parts["new", "dev"])
    return BiasedSet("cad_imdb", *chosen, (1e-5, 1e-4, 1e-3, 1e-2))


SETS: dict[str, Callable[[Path, int, Path], BiasedSet]] = {
    "waterbirds": waterbirds,
    "adult": adult,
    "compas": compas,
    "cad_imdb": cad_imdb,
}


def _split(name: str, whole: FeaturePart, seed: int) -> BiasedSet:
    """60 : 20 : 20 by seed; metadata are the validation samples, to be balanced by whoever uses them."""
    order = np.random.default_rng(seed).permutation(len(whole.targets))
    first, second = int(0.6 * len(order)), int(0.8 * len(order))
    train, validation, test = (whole.rows(rows) for rows in np.split(order, [first, second]))
    return BiasedSet(name, train, validation, test, validation, (1e-4, 1e-3, 1e-2, 1e-1, 1.0))
