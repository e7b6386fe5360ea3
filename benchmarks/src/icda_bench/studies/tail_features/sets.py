"""Long-tailed CIFAR-10 and Tiny ImageNet as frozen features, with balanced validation and test parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

from icda.data.bias.long_tail import long_tail
from icda.data.datasets.cifar import load_cifar10
from icda.data.datasets.tiny_imagenet import HELD_OUT, TRAIN, locate_file, read_stored
from icda.data.generators import generator_for
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda_bench.studies.features import FeaturePart, FeatureSet, embed_images

BLOCK = 10_000  # pictures per file of the cache: a run that is killed goes on with the next
CIFAR_IMAGES = 20_000  # of the 50,000 training images: about 2,000 per class
CIFAR_TEST_IMAGES = 5_000
CIFAR_VALIDATION = 50  # images per class
DIRECTIONS = 256  # of 1,280 features
TINY_VALIDATION = 10
MANY, FEW = 100, 20  # a class of more than MANY images is frequent, one of fewer than FEW rare (ImageNet-LT's limits)


@dataclass(frozen=True)
class TailSet(FeatureSet):
    """A long-tailed training part, and two balanced ones: to choose the weight decay on, and to judge on."""

    limits: tuple[int, int] = (MANY, FEW)
    fixed_training: bool = False  # the same training part whatever the seed

    def reduced(self, directions: int) -> TailSet:
        """The principal directions of the training part, largest first: heads are fitted five times as fast."""
        centred = self.train.features - self.train.features.mean(0)
        _, vectors = np.linalg.eigh(centred.T.astype(np.float64) @ centred / len(centred))
        basis = vectors[:, ::-1][:, :directions].astype(np.float32)
        return self.changed(lambda features: features @ basis)

    def kinds(self) -> dict[str, np.ndarray]:
        """The classes with many, a medium number and few training images."""
        (most, least), counts = self.limits, np.bincount(self.train.targets)
        return {
            "many": np.flatnonzero(counts > most),
            "medium": np.flatnonzero((counts <= most) & (counts >= least)),
            "few": np.flatnonzero(counts < least),
        }


def cifar10_lt(root: Path, seed: int, cache: Path, ratio: int) -> TailSet:
    """20,000 images of CIFAR-10 cut to a long tail. The seed draws them: fifty per class for validation, then the tail."""
    whole, test = _cifar10(root, cache)
    labels = torch.from_numpy(whole.targets)
    drawn = long_tail(labels, ratio, generator_for(seed, "tail_features"), metadata_per_class=CIFAR_VALIDATION)
    assert drawn.metadata is not None
    train, validation = (whole.rows(rows.numpy()) for rows in (drawn.train, drawn.metadata))
    # Three of ten classes each: the usual limits would call none of them rare at 10:1.
    counts = np.sort(np.bincount(train.targets))
    return TailSet(f"cifar10_lt_{ratio}", train, validation, test, (int(counts[-4]), int(counts[3])))


def tiny_imagenet_lt(root: Path, seed: int, cache: Path) -> TailSet:
    """A hundred classes, 500 to 5 images. The training part is fixed; the seed splits the balanced pictures."""
    stored = read_stored(locate_file(root))
    whole = FeaturePart(_embedded(stored.images, cache / "tail_tiny_imagenet"), stored.labels.numpy())
    split = stored.split
    held_out = (split == HELD_OUT).nonzero().flatten()
    chosen, rest = take_per_class(stored.labels[held_out], [TINY_VALIDATION], generator_for(seed, "tail_features"))
    rows = ((split == TRAIN).nonzero().flatten(), held_out[chosen], held_out[rest])
    train, validation, test = (whole.rows(part.numpy()) for part in rows)
    return TailSet("tiny_imagenet_lt", train, validation, test, fixed_training=True)


SETS: dict[str, Callable[[Path, int, Path], TailSet]] = {
    "cifar10_lt_100": partial(cifar10_lt, ratio=100),
    "cifar10_lt_10": partial(cifar10_lt, ratio=10),
    "tiny_imagenet_lt": tiny_imagenet_lt,
}


@lru_cache(maxsize=1)
def _cifar10(root: Path, cache: Path) -> tuple[FeaturePart, FeaturePart]:
    data = load_cifar10(root)
    source = data.test.source
    assert isinstance(source, ImageArray)
    train = _embedded(data.source.images[:CIFAR_IMAGES].numpy(), cache / "tail_cifar10_train")
    test = _embedded(source.images[:CIFAR_TEST_IMAGES].numpy(), cache / "tail_cifar10_test")
    labels, test_labels = data.labels[:CIFAR_IMAGES].numpy(), data.test.targets[:CIFAR_TEST_IMAGES].numpy()
    return FeaturePart(train, labels), FeaturePart(test, test_labels)


def _embedded(images: np.ndarray, stem: Path) -> np.ndarray:
    """Features of EfficientNet-Lite0 at 128 pixels, computed once, a file per block."""
    starts = range(0, len(images), BLOCK)
    blocks = [
        embed_images(images[start : start + BLOCK], stem.with_name(f"{stem.name}_{start}.npy")) for start in starts
    ]
    return np.concatenate(blocks)
