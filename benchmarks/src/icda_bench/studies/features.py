"""Real data as fixed features: what the studies of heads read, embed once, split and standardise."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from icda.data.registry import DatasetNotFoundError

Array = np.ndarray
S = TypeVar("S", bound="FeatureSet")
IMAGE_SIZE = 128  # four times as fast as 224 pixels, and as good for pictures of 32


@dataclass(frozen=True)
class FeaturePart:
    """Features (N, A), labels (N,) and, by name, attributes (N,): numbers from 0.

    `painted` (N, A), if there is any, are features of every sample with a visible mark put on its input.
    """

    features: Array
    targets: Array
    attributes: dict[str, Array] = field(default_factory=dict)
    painted: Array | None = None

    def rows(self, rows: Array) -> FeaturePart:
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        return FeaturePart(self.features[rows], self.targets[rows], attributes)

    def groups(self, attribute: str) -> Array:
        """(class, attribute) as one number."""
        values = self.attributes[attribute]
        return self.targets * (int(values.max()) + 1) + values


@dataclass(frozen=True)
class FeatureSet:
    """What is fitted to, what is chosen on, and what is judged on."""

    train: FeaturePart
    validation: FeaturePart
    test: FeaturePart

    def changed(self: S, change: Callable[[Array], Array]) -> S:
        """The same samples with other features."""
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        parts = {name: part for name, part in parts.items() if isinstance(part, FeaturePart)}
        return replace(self, **{name: replace(part, features=change(part.features)) for name, part in parts.items()})

    def standardised(self: S) -> S:
        """Every feature with mean zero and deviation one on the training part."""
        mean, scale = self.train.features.mean(0), self.train.features.std(0)
        scale = np.where(scale > 1e-6, scale, 1.0).astype(np.float32)
        return self.changed(lambda features: (features - mean) / scale)


def worst_group(hits: Array, groups: Array) -> float:
    """The lowest share of hits among the groups there are.

    >>> worst_group(np.array([True, False, True]), np.array([0, 0, 5]))
    0.5
    """
    return min(float(hits[groups == group].mean()) for group in np.unique(groups))


def read_waterbirds(root: Path) -> tuple[FeaturePart, Array]:
    """Birds on land and water, features of a frozen ResNet-50, and the official split: 0, 1 or 2."""
    with np.load(there(root / "waterbirds_resnet50.npz"), allow_pickle=False) as data:
        targets, place = data["y"].astype(np.int64), data["place"].astype(np.int64)
        return FeaturePart(data["feats"].astype(np.float32), targets, {"place": place}), data["split"]


def read_adult(root: Path) -> dict[str, Array]:
    """The columns, as text, of a published one-hot table of people and what they earn."""
    with zipfile.ZipFile(there(root / "tabular" / "adult.csv.zip")) as archive:
        return _columns(csv.reader(io.TextIOWrapper(archive.open("adult.csv"), "utf-8")))


def read_compas(root: Path) -> dict[str, Array]:
    """The columns, as text, of people who were arrested, and whether they were again."""
    with gzip.open(there(root / "tabular" / "compas.csv.gz"), "rt", encoding="utf-8") as file:
        return _columns(csv.reader(file))


def _columns(lines: Iterable[list[str]]) -> dict[str, Array]:
    names, *cells = lines
    return dict(zip(names, np.array(cells).T, strict=True))


def compas_races(people: dict[str, Array]) -> Array:
    """0 African-American, 1 Caucasian, and 2 for all others together: some have fewer than 20 people."""
    return np.select([people["race"] == "African-American", people["race"] == "Caucasian"], [0, 1], 2)


def read_texts(root: Path, member: str) -> list[dict[str, str]]:
    """The rows of a table of texts, separated by tabs or commas as its name says."""
    with lzma.open(there(root / "text.tar.xz")) as packed, tarfile.open(fileobj=packed) as archive:
        found = archive.extractfile(member)
        assert found is not None
        lines = io.TextIOWrapper(found, "utf-8")
        if member.endswith(".tsv"):
            return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        return list(csv.DictReader(lines))


def embed_images(images: Array, path: Path) -> Array:
    """Features of EfficientNet-Lite0 at 128 pixels, computed once."""
    if path.exists():
        return np.load(path, allow_pickle=False)
    import torch

    from icda.models.encoders import ImageEncoder, create_encoder

    encoder = create_encoder("efficientnet_lite0", "image", IMAGE_SIZE)
    assert isinstance(encoder, ImageEncoder)

    def enlarged(image: Array) -> Array:
        return np.asarray(Image.fromarray(image).resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC))

    blocks = (np.stack([enlarged(image) for image in images[k : k + 64]]) for k in range(0, len(images), 64))
    return _kept(np.concatenate([encoder.encode(torch.from_numpy(block)).numpy() for block in blocks]), path)


def embed_texts(texts: Sequence[str], path: Path) -> Array:
    """MiniLM's sentence embeddings, computed once; texts of one length stand together and need no padding."""
    if path.exists():
        return np.load(path, allow_pickle=False)
    from icda.models.encoders import TextEncoder, create_encoder

    encoder = create_encoder("minilm", "text")
    assert isinstance(encoder, TextEncoder)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    blocks = ([texts[row] for row in order[k : k + 32]] for k in range(0, len(order), 32))
    encoded = np.concatenate([encoder.encode(block).numpy() for block in blocks])
    features = np.empty_like(encoded)
    features[order] = encoded
    return _kept(features, path)


def _kept(features: Array, path: Path) -> Array:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, features.astype(np.float32))
    return np.load(path, allow_pickle=False)


def there(path: Path) -> Path:
    if not path.exists():
        raise DatasetNotFoundError(f"{path.absolute()} is not there: point --root or ICDA_DATA to the folder with it.")
    return path
