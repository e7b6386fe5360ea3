"""Real biased data as fixed features, with attributes that make groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icda_bench.studies.features import (
    FeaturePart,
    FeatureSet,
    compas_races,
    embed_texts,
    read_adult,
    read_compas,
    read_texts,
    read_waterbirds,
)


@dataclass(frozen=True)
class BiasedSet(FeatureSet):
    """Three parts and metadata: small, trusted, and balanced where the attribute is known."""

    metadata: FeaturePart
    inverse_decays: tuple[float, ...]  # what C is chosen from


def waterbirds(root: Path, seed: int, cache: Path) -> BiasedSet:
    """The official split, whatever the seed."""
    whole, split = read_waterbirds(root)
    train, validation, test = (whole.rows(np.flatnonzero(split == number)) for number in range(3))
    return BiasedSet(train, validation, test, validation, (1e-5, 1e-4, 1e-3))


def adult(root: Path, seed: int, cache: Path) -> BiasedSet:
    """Income above 50,000 dollars; sex and race are among the features, as in the published one-hot table."""
    columns = read_adult(root)
    inputs = [column for name, column in columns.items() if not name.startswith("salary_")]
    attributes = {
        "sex": columns["sex_Female"].astype(np.int64),
        "race": 1 - columns["race_White"].astype(np.int64),
    }
    targets = columns["salary_>50K"].astype(np.int64)
    return _split(FeaturePart(np.stack(inputs, 1).astype(np.float32), targets, attributes), seed)


COMPAS_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")


def compas(root: Path, seed: int, cache: Path) -> BiasedSet:
    """Arrested again within two years; from age, record, charge, sex and race."""
    people = read_compas(root)
    sex, race = (people["sex"] == "Female").astype(np.int64), compas_races(people)
    numbers = np.stack([people[name] for name in COMPAS_NUMBERS], 1).astype(np.float64)
    felony = people["c_charge_degree"] == "F"
    features = np.column_stack([numbers, np.log1p(numbers[:, 1:]), felony, sex, np.eye(3)[race]]).astype(np.float32)
    targets = people["two_year_recid"].astype(np.int64)
    return _split(FeaturePart(features, targets, {"sex": sex, "race": race}), seed)


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
    return BiasedSet(*chosen, (1e-5, 1e-4, 1e-3, 1e-2))


def _split(whole: FeaturePart, seed: int) -> BiasedSet:
    """60 : 20 : 20 by seed; metadata are the validation samples, to be balanced by whoever uses them."""
    order = np.random.default_rng(seed).permutation(len(whole.targets))
    first, second = int(0.6 * len(order)), int(0.8 * len(order))
    train, validation, test = (whole.rows(rows) for rows in np.split(order, [first, second]))
    return BiasedSet(train, validation, test, validation, (1e-4, 1e-3, 1e-2, 1e-1, 1.0))


SETS: dict[str, Callable[[Path, int, Path], BiasedSet]]
SETS = {make.__name__: make for make in (waterbirds, adult, compas, cad_imdb)}
