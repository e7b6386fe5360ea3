"""Tables, embeddings and photos with a known attribute, split by seed; the attribute itself is no feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from icda.data.datasets.cifar import load_cifar10
from icda.data.own.encoding import Cells, encode_table, plan_columns
from icda_bench.markdown import grouped
from icda_bench.studies.features import (
    FeaturePart,
    compas_races,
    embed_images,
    read_adult,
    read_compas,
    read_waterbirds,
)

GROUP = "group"
TRAIN_SHARE = 0.7  # of a table's rows
DRAWN_SHARE = 0.8  # of Waterbirds' training split, whose test split is fixed
CAR, HORSE = 1, 7  # CIFAR-10's numbers
PHOTOS, RARE, PHOTOS_TEST = 150, 10, 200  # of each class: training photos, those in the other style, test photos
COMPAS_COLUMNS = (
    "sex",
    "age",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "days_b_screening_arrest",
    "c_charge_degree",
    "c_charge_desc",
)  # known at the arrest; the other columns are names, COMPAS's own scores, or what happened later
Parts = tuple[FeaturePart, FeaturePart]


def adult(root: Path, seed: int, cache: Path) -> Parts:
    """Income above 50,000 dollars; the attribute is sex. The published one-hot table, with its words put back."""
    columns = read_adult(root)
    cells: dict[str, list[str]] = {}
    for name, levels in grouped(columns, lambda name: name.partition("_")[0]).items():
        flags = np.stack([columns[level] for level in levels])
        words = np.array([level.partition("_")[2] for level in levels])
        cells[name] = (flags[0] if len(levels) == 1 else words[(flags == "1").argmax(0)]).tolist()
    targets, sex = np.array(cells.pop("salary")) == ">50K", np.array(cells.pop("sex")) == "Female"
    return _table(cells, targets.astype(np.int64), sex.astype(np.int64), seed)


def compas(root: Path, seed: int, cache: Path) -> Parts:
    """Arrested again within two years; the attribute is race."""
    people = read_compas(root)
    cells = {name: people[name].tolist() for name in COMPAS_COLUMNS}
    return _table(cells, people["two_year_recid"].astype(np.int64), compas_races(people), seed)


def waterbirds(root: Path, seed: int, cache: Path) -> Parts:
    """Birds on land and water, features of a frozen ResNet-50: four fifths of the training split, and the test split."""
    whole, split = read_waterbirds(root)
    whole = FeaturePart(whole.features, whole.targets, {GROUP: whole.attributes["place"]})
    train = np.random.default_rng(seed).permutation(np.flatnonzero(split == 0))
    return whole.rows(train[: int(DRAWN_SHARE * len(train))]), whole.rows(np.flatnonzero(split == 2))


def photos(root: Path, seed: int, cache: Path) -> Parts:
    """300 pictures of CIFAR-10: cars as photos, horses as sketches, ten of each the other way; features of a frozen
    EfficientNet-Lite0. The test pictures are others, half of each class in each style."""
    images = load_cifar10(root)
    pixels, labels = images.source.images.numpy(), images.labels.numpy()
    generator, chosen = np.random.default_rng(seed), []
    for target, number in enumerate((CAR, HORSE)):
        rows = generator.permutation(np.flatnonzero(labels == number))[: PHOTOS + PHOTOS_TEST]
        for place, row in enumerate(rows):
            usual = place % 2 if place >= PHOTOS else target ^ (place < RARE)
            chosen.append((row, target, int(usual), place >= PHOTOS))
    rows, targets, sketched, test = (np.array(values) for values in zip(*chosen, strict=True))
    pictures = np.stack(
        [as_sketch(pixels[row]) if sketch else pixels[row] for row, sketch in zip(rows, sketched, strict=True)]
    )
    features = embed_images(pictures, cache / f"photos_{seed}.npy")
    whole = FeaturePart(features, targets, {GROUP: sketched})
    return whole.rows(np.flatnonzero(~test)), whole.rows(np.flatnonzero(test))


def as_sketch(pixels: np.ndarray) -> np.ndarray:
    """Edges as grey lines on white."""
    edges = Image.fromarray(pixels).convert("L").filter(ImageFilter.FIND_EDGES)
    return np.asarray(ImageOps.invert(ImageOps.autocontrast(edges)).convert("RGB"))


def _table(cells: Mapping[str, Cells], targets: np.ndarray, attribute: np.ndarray, seed: int) -> Parts:
    """As `icda fit` encodes a .csv: levels and medians are learnt of the training rows."""
    order = np.random.default_rng(seed).permutation(len(targets))
    train = np.zeros(len(targets), dtype=bool)
    train[order[: int(TRAIN_SHARE * len(order))]] = True
    plan, _ = plan_columns(cells, train)
    whole = FeaturePart(encode_table(cells, plan), targets, {GROUP: attribute})
    return whole.rows(np.flatnonzero(train)), whole.rows(np.flatnonzero(~train))


SETS: dict[str, Callable[[Path, int, Path], Parts]]
SETS = {make.__name__: make for make in (adult, compas, waterbirds, photos)}
