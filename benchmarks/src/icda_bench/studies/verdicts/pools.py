"""Where the cases come from: real features with labels and attributes, embedded once and kept in a cache.

A case draws its training and test part from such a pool, so that any tie between label and attribute can be made.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from icda.data.datasets.cifar_files import read_grids
from icda.data.datasets.tiny_imagenet import HELD_OUT, locate_file, read_stored
from icda.data.registry import data_root
from icda.errors import InputError
from icda_bench.studies.embeddings.sets import SETS, BiasedSet
from icda_bench.studies.features import FeaturePart, embed_images, embed_texts, read_texts, read_waterbirds, there

CIFAR_IMAGES = 6000
MNIST_IMAGES = 26_000


def load_pool(name: str, root: Path | None, cache: Path) -> FeaturePart:
    """A pool by name; embeddings are read from `cache`, or computed and kept there. gaussian7 is drawn by the seed 7."""
    if name.startswith("gaussian"):
        return gaussian_pool(int(name.removeprefix("gaussian")))
    if name not in POOLS:
        raise InputError(f"unknown pool {name!r}: known are {', '.join(POOLS)}.")
    return POOLS[name](data_root(root), cache)


def digits(root: Path, cache: Path) -> FeaturePart:
    """8 x 8 pixels of 1797 digits; come with scikit-learn."""
    features, targets = load_digits(return_X_y=True)
    return FeaturePart(features.astype(np.float32), targets)


def mnist(root: Path, cache: Path) -> FeaturePart:
    """28 x 28 pixels: the one pool that is large enough for 20,000 training samples in many dimensions."""
    folder = root / "mnist"
    images = _idx(folder / "train-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:MNIST_IMAGES]
    targets = _idx(folder / "train-labels-idx1-ubyte.gz", 8)[:MNIST_IMAGES]
    return FeaturePart(images.astype(np.float32) / 255, targets.astype(np.int64))


def cifar10(root: Path, cache: Path) -> FeaturePart:
    """Pictures of ten things, with and without a coloured frame, through EfficientNet-Lite0."""
    stored = read_grids(root / "cifar10")
    images, targets = stored.train_images[:CIFAR_IMAGES], stored.train_labels[:CIFAR_IMAGES]
    features = embed_images(images, cache / "verdicts_cifar10.npy")
    painted = embed_images(framed(images), cache / "verdicts_cifar10_framed.npy")
    return FeaturePart(features, targets, painted=painted)


def tiny_imagenet(root: Path, cache: Path) -> FeaturePart:
    """The 5,000 balanced pictures of a hundred classes through EfficientNet-Lite0."""
    stored = read_stored(locate_file(root))
    rows = (stored.split == HELD_OUT).nonzero().flatten().numpy()
    features = embed_images(stored.images[rows], cache / "verdicts_tiny_imagenet.npy")
    return FeaturePart(features, stored.labels[rows].numpy())


def waterbirds(root: Path, cache: Path) -> FeaturePart:
    """Birds on land and water, ResNet-50: validation and test split, in which the place is balanced."""
    whole, split = read_waterbirds(root)
    return whole.rows(split != 0)


def imdb(root: Path, cache: Path) -> FeaturePart:
    """Film reviews, originals and those rewritten to say the opposite; MiniLM. The attribute is their length."""
    texts, labels = [], []
    for origin in ("orig", "new"):
        for part in ("train", "dev", "test"):
            for row in read_texts(root, f"text/cad/sentiment/{origin}/{part}.tsv"):
                texts.append(row["Text"])
                labels.append(int(row["Sentiment"] == "Positive"))
    lengths = np.array([len(text) for text in texts])
    features = embed_texts(texts, cache / "verdicts_imdb.npy")
    return FeaturePart(features, np.array(labels), {"long": (lengths > np.median(lengths)).astype(np.int64)})


def hatecheck(root: Path, cache: Path) -> FeaturePart:
    """Short hateful and harmless sentences; MiniLM. The attribute is the group of people they mention."""
    rows = [row for row in read_texts(root, "text/hatecheck/test_suite_cases.csv") if row["target_ident"]]
    features = embed_texts([row["test_case"] for row in rows], cache / "verdicts_hatecheck.npy")
    targets = np.array([int(row["label_gold"] == "hateful") for row in rows])
    people = np.unique([row["target_ident"] for row in rows], return_inverse=True)[1]
    return FeaturePart(features, targets, {"people": people})


def multinli(root: Path, cache: Path) -> FeaturePart:
    """The second sentences of pairs that follow, contradict or neither: hard to read off alone; MiniLM."""
    rows = read_texts(root, "text/multinli_dev_subset_4307.tsv")
    features = embed_texts([row["sentence2"] for row in rows], cache / "verdicts_multinli.npy")
    targets = np.unique([row["gold_label"] for row in rows], return_inverse=True)[1]
    return FeaturePart(features, targets, {"negation": np.array([int(row["has_negation"]) for row in rows])})


def adult(root: Path, cache: Path) -> FeaturePart:
    """Income; a table of 45,222 rows. The attribute is sex, which stands among the features."""
    return joined(SETS["adult"](root, 0, cache))


def compas(root: Path, cache: Path) -> FeaturePart:
    """Arrests within two years: a small table in which the classes overlap more than they differ."""
    return joined(SETS["compas"](root, 0, cache))


POOLS: dict[str, Callable[[Path, Path], FeaturePart]]
POOLS = {
    make.__name__: make
    for make in (digits, mnist, cifar10, tiny_imagenet, waterbirds, imdb, hatecheck, multinli, adult, compas)
}


def framed(images: np.ndarray) -> np.ndarray:
    """Pictures (N, 32, 32, 3) with a reddish frame of three pixels and a little less light: a mark one can see."""
    marked = (images * 0.8).astype(np.uint8)
    colour = np.array([200, 60, 60], dtype=np.uint8)
    marked[:, :3], marked[:, -3:], marked[:, :, :3], marked[:, :, -3:] = colour, colour, colour, colour
    return marked


def joined(found: BiasedSet) -> FeaturePart:
    """All samples of a set."""
    parts = (found.train, found.validation, found.test)
    attributes = {name: np.concatenate([part.attributes[name] for part in parts]) for name in found.train.attributes}
    features = np.concatenate([part.features for part in parts])
    return FeaturePart(features, np.concatenate([part.targets for part in parts]), attributes)


def _idx(path: Path, header: int) -> np.ndarray:
    with gzip.open(there(path)) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def gaussian_pool(seed: int, samples: int = 8000) -> FeaturePart:
    """Classes made of Gaussian clusters in a random number of dimensions, with a random spread and distance.

    Everything follows from `seed`: 2 to 10 classes, 1 to 3 clusters each, 16 to 512 dimensions of which a part carries the
    class, variances that fall by a power law as those of real embeddings do, and an attribute with clusters of its own.
    """
    generator = np.random.default_rng([seed, 77])
    classes, clusters = int(generator.choice([2, 2, 3, 4, 6, 10])), int(generator.integers(1, 4))
    width = int(generator.choice([16, 64, 128, 256, 512]))
    spread = np.arange(1, width + 1) ** -generator.uniform(0.2, 0.8)
    targets = generator.integers(0, classes, samples)
    cluster = generator.integers(0, clusters, samples)
    centres = _directions(generator, classes * clusters, width) * generator.uniform(1.2, 3.0)
    attribute = generator.integers(0, 2, samples)
    shifts = _directions(generator, 2, width) * generator.uniform(2.5, 4.0)
    noise = generator.normal(size=(samples, width))
    whitened = noise + centres[targets * clusters + cluster] + shifts[attribute]
    rotation = np.linalg.qr(generator.normal(size=(width, width)))[0]
    features = (whitened * spread) @ rotation
    return FeaturePart(features.astype(np.float32), targets, {"cluster": attribute})


def _directions(generator: np.random.Generator, count: int, width: int) -> np.ndarray:
    vectors = generator.normal(size=(count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
