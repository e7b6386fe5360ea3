"""Where the cases come from: real features with labels and attributes, embedded once and kept in a cache."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from icda.bench.studies.embeddings.sets import adult as adult_set
from icda.bench.studies.embeddings.sets import compas as compas_set
from icda.data.datasets.cifar_files import read_grids
from icda.data.datasets.tiny_imagenet import HELD_OUT, locate_file, read_stored
from icda.data.registry import DatasetNotFoundError, data_root
from icda.errors import InputError

IMAGE_SIZE = 128  # four times as fast as 224 pixels, and as good for pictures of 32
CIFAR_IMAGES = 6000
MNIST_IMAGES = 26_000


@dataclass(frozen=True)
class Pool:
    """Features (N, A), labels (N,), natural attributes by name, and, if there are any, the same samples `painted`.

    A case draws its training and test part from a pool, so that any tie between label and attribute can be made.
    """

    name: str
    features: np.ndarray
    targets: np.ndarray
    attributes: dict[str, np.ndarray] = field(default_factory=dict)
    painted: np.ndarray | None = None  # (N, A): features of every sample with a visible mark put on its input

    def __len__(self) -> int:
        return len(self.targets)


def load_pool(name: str, root: Path | None, cache: Path) -> Pool:
    """A pool by name; embeddings are read from `cache`, or computed and kept there."""
    if name not in POOLS:
        raise InputError(f"unknown pool {name!r}: known are {', '.join(POOLS)}.")
    return POOLS[name](data_root(root), cache)


def digits(root: Path, cache: Path) -> Pool:
    """8 x 8 pixels of 1797 digits; come with scikit-learn."""
    features, targets = load_digits(return_X_y=True)
    return Pool("digits", features.astype(np.float32), targets)


def mnist(root: Path, cache: Path) -> Pool:
    """28 x 28 pixels: the one pool that is large enough for 20,000 training samples in many dimensions."""
    folder = root / "mnist"
    images = _idx(folder / "train-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:MNIST_IMAGES]
    targets = _idx(folder / "train-labels-idx1-ubyte.gz", 8)[:MNIST_IMAGES]
    return Pool("mnist", images.astype(np.float32) / 255, targets.astype(np.int64))


def cifar10(root: Path, cache: Path) -> Pool:
    """Pictures of ten things, with and without a coloured frame, through EfficientNet-Lite0."""
    stored = read_grids(root / "cifar10")
    images, targets = stored.train_images[:CIFAR_IMAGES], stored.train_labels[:CIFAR_IMAGES]
    features = embedded_images(images, cache / "verdicts_cifar10.npy")
    painted = embedded_images(framed(images), cache / "verdicts_cifar10_framed.npy")
    return Pool("cifar10", features, targets, painted=painted)


def tiny_imagenet(root: Path, cache: Path) -> Pool:
    """The 5,000 balanced pictures of a hundred classes through EfficientNet-Lite0."""
    stored = read_stored(locate_file(root))
    rows = (stored.split == HELD_OUT).nonzero().flatten().numpy()
    features = embedded_images(stored.images[rows], cache / "verdicts_tiny_imagenet.npy")
    return Pool("tiny_imagenet", features, stored.labels[rows].numpy())


def waterbirds(root: Path, cache: Path) -> Pool:
    """Birds on land and water, ResNet-50: validation and test split, in which the place is balanced."""
    path = _there(root / "waterbirds_resnet50.npz")
    with np.load(path, allow_pickle=False) as data:
        rows = data["split"] != 0
        features, targets, place = (data[name][rows] for name in ("feats", "y", "place"))
    return Pool("waterbirds", features.astype(np.float32), targets.astype(np.int64), {"place": place.astype(np.int64)})


def imdb(root: Path, cache: Path) -> Pool:
    """Film reviews, originals and those rewritten to say the opposite; MiniLM. The attribute is their length."""
    texts, labels = [], []
    for origin in ("orig", "new"):
        for part in ("train", "dev", "test"):
            for row in _table(root, f"text/cad/sentiment/{origin}/{part}.tsv", "\t"):
                texts.append(row["Text"])
                labels.append(int(row["Sentiment"] == "Positive"))
    lengths = np.array([len(text) for text in texts])
    features = _embedded_texts(texts, cache / "verdicts_imdb.npy")
    return Pool("imdb", features, np.array(labels), {"long": (lengths > np.median(lengths)).astype(np.int64)})


def hatecheck(root: Path, cache: Path) -> Pool:
    """Short hateful and harmless sentences; MiniLM. The attribute is the group of people they mention."""
    rows = [row for row in _table(root, "text/hatecheck/test_suite_cases.csv", ",") if row["target_ident"]]
    features = _embedded_texts([row["test_case"] for row in rows], cache / "verdicts_hatecheck.npy")
    targets = np.array([int(row["label_gold"] == "hateful") for row in rows])
    people = np.unique([row["target_ident"] for row in rows], return_inverse=True)[1]
    return Pool("hatecheck", features, targets, {"people": people})


def multinli(root: Path, cache: Path) -> Pool:
    """The second sentences of pairs that follow, contradict or neither: hard to read off alone; MiniLM."""
    rows = _table(root, "text/multinli_dev_subset_4307.tsv", "\t")
    features = _embedded_texts([row["sentence2"] for row in rows], cache / "verdicts_multinli.npy")
    targets = np.unique([row["gold_label"] for row in rows], return_inverse=True)[1]
    return Pool("multinli", features, targets, {"negation": np.array([int(row["has_negation"]) for row in rows])})


def adult(root: Path, cache: Path) -> Pool:
    """Income; a table of 45,222 rows. The attribute is sex, which stands among the features."""
    return _tabular("adult", adult_set(root, 0, cache))


def compas(root: Path, cache: Path) -> Pool:
    """Arrests within two years: a small table in which the classes overlap more than they differ."""
    return _tabular("compas", compas_set(root, 0, cache))


POOLS: dict[str, Callable[[Path, Path], Pool]] = {
    "digits": digits,
    "mnist": mnist,
    "cifar10": cifar10,
    "tiny_imagenet": tiny_imagenet,
    "waterbirds": waterbirds,
    "imdb": imdb,
    "hatecheck": hatecheck,
    "multinli": multinli,
    "adult": adult,
    "compas": compas,
}


def framed(images: np.ndarray) -> np.ndarray:
    """Pictures (N, 32, 32, 3) with a reddish frame of three pixels and a little less light: a mark one can see."""
    marked = (images * 0.8).astype(np.uint8)
    colour = np.array([200, 60, 60], dtype=np.uint8)
    marked[:, :3], marked[:, -3:], marked[:, :, :3], marked[:, :, -3:] = colour, colour, colour, colour
    return marked


def _tabular(name: str, found) -> Pool:  # type: ignore[no-untyped-def]
    parts = (found.train, found.validation, found.test)
    attributes = {key: np.concatenate([part.attributes[key] for part in parts]) for key in ("sex", "race")}
    features = np.concatenate([part.features for part in parts]).astype(np.float32)
    return Pool(name, features, np.concatenate([part.targets for part in parts]), attributes)


def embedded_images(images: np.ndarray, path: Path) -> np.ndarray:
    if path.exists():
        return np.load(path, allow_pickle=False)
    import torch

    from icda.models.encoders import ImageEncoder, create_encoder

    encoder = create_encoder("efficientnet_lite0", "image", IMAGE_SIZE)
    assert isinstance(encoder, ImageEncoder)
    size = (IMAGE_SIZE, IMAGE_SIZE)
    parts = []
    for start in range(0, len(images), 64):
        block = [
            np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
            for image in images[start : start + 64]
        ]
        parts.append(encoder.encode(torch.from_numpy(np.stack(block))).numpy())
    return _kept(np.concatenate(parts), path)


def _embedded_texts(texts: Sequence[str], path: Path) -> np.ndarray:
    if path.exists():
        return np.load(path, allow_pickle=False)
    from icda.models.encoders import TextEncoder, create_encoder

    encoder = create_encoder("minilm", "text")
    assert isinstance(encoder, TextEncoder)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))  # texts of one length need no padding
    parts = [
        encoder.encode([texts[row] for row in order[start : start + 32]]).numpy() for start in range(0, len(order), 32)
    ]
    features = np.empty((len(texts), parts[0].shape[1]), np.float32)
    features[order] = np.concatenate(parts)
    return _kept(features, path)


def _kept(features: np.ndarray, path: Path) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, features.astype(np.float32))
    return np.load(path, allow_pickle=False)


def _table(root: Path, member: str, delimiter: str) -> list[dict[str, str]]:
    with lzma.open(_there(root / "text.tar.xz")) as packed, tarfile.open(fileobj=packed) as files:
        found = files.extractfile(member)
        assert found is not None
        lines = io.TextIOWrapper(found, "utf-8")
        if delimiter == "\t":
            return list(csv.DictReader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE))
        return list(csv.DictReader(lines, delimiter=delimiter))


def _idx(path: Path, header: int) -> np.ndarray:
    with gzip.open(_there(path)) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def _there(path: Path) -> Path:
    if not path.exists():
        raise DatasetNotFoundError(f"{path.absolute()} is not there: point --root or ICDA_DATA to the folder with it.")
    return path
